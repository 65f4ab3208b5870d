// The JavaScript clients against a gateway: `node clients.mjs CLIENT ORIGIN KEY TARGET...`.
//
// It prints one line of JSON for each target and feature: what the client made of the response. The test judges it.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [client, origin, key, ...targets] = process.argv.slice(2);
const QUESTION = "What is the capital of France?";
const WEATHER = "How is the weather in Bern?";
const TRIP = "Plan a trip.";
const LONG = "Tell me a long story.";
const MAX_TOKENS = 200;
const Trip = z.object({ city: z.string(), days: z.number().int() });
const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const user = (content) => [{ role: "user", content }];

function openai() {
  const api = new OpenAI({ baseURL: `${origin}/v1`, apiKey: key, maxRetries: 0 });
  const create = (model, content, more = {}) =>
    api.chat.completions.create({ model, messages: user(content), max_tokens: MAX_TOKENS, ...more });
  const weather = { type: "function", function: { name: "weather", description: "The weather.", parameters: CITY } };
  return {
    async text(model) {
      const answer = await create(model, QUESTION);
      return { text: answer.choices[0].message.content, tokens: answer.usage.completion_tokens };
    },
    async stream(model) {
      const parts = [];
      for await (const chunk of await create(model, QUESTION, { stream: true })) {
        if (chunk.choices[0]?.delta.content) parts.push(chunk.choices[0].delta.content);
      }
      return { text: parts.join(""), parts: parts.length };
    },
    async tools(model) {
      const messages = user(WEATHER);
      const asked = await create(model, WEATHER, { tools: [weather] });
      const [call] = asked.choices[0].message.tool_calls;
      const city = JSON.parse(call.function.arguments).city;
      messages.push(asked.choices[0].message, { role: "tool", tool_call_id: call.id, content: `${city}: sunny` });
      const answer = await create(model, WEATHER, { messages, tools: [weather] });
      return { called: call.function.name, city, text: answer.choices[0].message.content };
    },
    async structured(model) {
      const format = { type: "json_schema", json_schema: { name: "trip", schema: SCHEMA, strict: true } };
      const answer = await api.chat.completions.parse({
        model, messages: user(TRIP), max_tokens: MAX_TOKENS, response_format: format,
      });
      return answer.choices[0].message.parsed ?? JSON.parse(answer.choices[0].message.content);
    },
    error: (model) => refused(() => create(model, QUESTION), OpenAI.RateLimitError),
    async cancel(model) {
      const stream = await create(model, LONG, { stream: true, max_tokens: 2000 });
      for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
      return { aborted: stream.controller.signal.aborted };
    },
  };
}

function anthropic() {
  const api = new Anthropic({ baseURL: origin, apiKey: key, maxRetries: 0 });
  const create = (model, content, more = {}) =>
    api.messages.create({ model, messages: user(content), max_tokens: MAX_TOKENS, ...more });
  const weather = { name: "weather", description: "The weather.", input_schema: CITY };
  const textOf = (answer) => answer.content.filter((part) => part.type === "text").map((part) => part.text).join("");
  return {
    async text(model) {
      const answer = await create(model, QUESTION);
      return { text: textOf(answer), tokens: answer.usage.output_tokens };
    },
    async stream(model) {
      const parts = [];
      const stream = api.messages.stream({ model, messages: user(QUESTION), max_tokens: MAX_TOKENS });
      stream.on("text", (part) => parts.push(part));
      return { text: textOf(await stream.finalMessage()), parts: parts.length };
    },
    async tools(model) {
      const asked = await create(model, WEATHER, { tools: [weather] });
      const call = asked.content.find((part) => part.type === "tool_use");
      const result = { type: "tool_result", tool_use_id: call.id, content: `${call.input.city}: sunny` };
      const messages = [
        ...user(WEATHER),
        { role: "assistant", content: asked.content },
        { role: "user", content: [result] },
      ];
      const answer = await create(model, WEATHER, { messages, tools: [weather] });
      return { called: call.name, city: call.input.city, text: textOf(answer) };
    },
    async structured(model) {
      const answer = await create(model, TRIP, { output_config: { format: { type: "json_schema", schema: SCHEMA } } });
      return JSON.parse(textOf(answer));
    },
    error: (model) => refused(() => create(model, QUESTION), Anthropic.RateLimitError),
    async cancel(model) {
      const stream = await create(model, LONG, { stream: true, max_tokens: 2000 });
      for await (const event of stream) if (event.type === "content_block_delta") break;
      return { aborted: stream.controller.signal.aborted };
    },
  };
}

function ai(model) {
  const weather = tool({
    description: "The weather.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `${city}: sunny`,
  });
  const settings = { maxRetries: 0, maxOutputTokens: MAX_TOKENS };
  return {
    async text(name) {
      const answer = await generateText({ ...settings, model: model(name), prompt: QUESTION });
      return { text: answer.text, tokens: answer.usage.outputTokens };
    },
    async stream(name) {
      const parts = [];
      for await (const part of streamText({ ...settings, model: model(name), prompt: QUESTION }).textStream) {
        parts.push(part);
      }
      return { text: parts.join(""), parts: parts.length };
    },
    async tools(name) {
      const answer = await generateText({
        ...settings, model: model(name), prompt: WEATHER, tools: { weather }, stopWhen: stepCountIs(3),
      });
      const [call] = answer.steps[0].toolCalls;
      return { called: call.toolName, city: call.input.city, text: answer.text };
    },
    async structured(name) {
      const answer = await generateText({
        ...settings, model: model(name), prompt: TRIP, output: Output.object({ schema: Trip }),
      });
      return answer.output;
    },
    error: (name) => refused(() => generateText({ ...settings, model: model(name), prompt: QUESTION }), Error),
    async cancel(name) {
      const controller = new AbortController();
      const story = streamText({
        ...settings, model: model(name), prompt: LONG, maxOutputTokens: 2000, abortSignal: controller.signal,
        onError() {},
      });
      try {
        for await (const _ of story.textStream) controller.abort();
      } catch (error) {
        if (error.name !== "AbortError") throw error;
      }
      return { aborted: controller.signal.aborted };
    },
  };
}

async function refused(act, kind) {
  try {
    await act();
  } catch (error) {
    return { status: error.status ?? error.statusCode, typed: error instanceof kind };
  }
  return { status: 200, typed: false };
}

const CLIENTS = {
  openai,
  "@anthropic-ai/sdk": anthropic,
  "ai with @ai-sdk/openai": () => {
    const provider = createOpenAI({ baseURL: `${origin}/v1`, apiKey: key });
    return ai((name) => provider.chat(name));
  },
  "ai with @ai-sdk/openai, responses": () => {
    const provider = createOpenAI({ baseURL: `${origin}/v1`, apiKey: key });
    return ai((name) => provider.responses(name));
  },
  "ai with @ai-sdk/anthropic": () => {
    const provider = createAnthropic({ baseURL: `${origin}/v1`, apiKey: key });
    return ai((name) => provider(name));
  },
};

for (const target of targets) {
  for (const [feature, act] of Object.entries(CLIENTS[client]())) {
    const provider = { error: "limited-", cancel: "slow-" }[feature] ?? "";
    let result;
    try {
      result = await act(`${provider}${target}/m`);
    } catch (error) {
      result = { failed: `${error.name}: ${error.message}` };
    }
    console.log(JSON.stringify({ target, feature, result }));
  }
}
