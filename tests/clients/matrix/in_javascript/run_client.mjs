// The JavaScript clients: `node run_client.mjs CLIENT ORIGIN KEY`, with one cell in each line of standard input.
//
// A cell is `{"model": …, "ask": …}` (see `features.py`); the line printed for it says in neutral words what the client
// made of the response, or that the client has no such feature. Each client is imported only where it runs.
import { createInterface } from "node:readline";

const [client, origin, key] = process.argv.slice(-3);
const TIMEOUT_MS = 30_000;

class Unsupported extends Error {}
const no = (what) => {
  throw new Unsupported(what);
};

function only(ask, known, kinds) {
  const always = ["messages", "max_tokens", "stream", "usage", "key", "operation", "loop", "cancel", "asynchronous"];
  const missing = Object.keys(ask).filter((name) => !always.includes(name) && !known.includes(name));
  if (ask.asynchronous || missing.length) no(missing.join(", ") || "all of JavaScript is asynchronous");
  for (const message of ask.messages ?? []) {
    for (const part of message.parts) {
      const kind = Object.keys(part)[0];
      if (["image", "image_url", "pdf", "audio"].includes(kind) && !kinds.includes(kind)) no(kind);
      if (part.result?.image && !kinds.includes("result_image")) no("picture in a result");
    }
  }
}

const schemaTool = (tool) => ({ name: tool.name, description: tool.description, parameters: tool.schema });

// OpenAI's chat

const chatCall = (call) => ({
  id: call.id, type: "function", function: { name: call.name, arguments: JSON.stringify(call.arguments) },
});

function chatMessages(ask) {
  const messages = [];
  if (ask.system) {
    const marked = [{ type: "text", text: ask.system, cache_control: { type: "ephemeral" } }];
    messages.push({ role: "system", content: ask.cache ? marked : ask.system });
  }
  for (const message of ask.messages) {
    const content = [], calls = [];
    for (const part of message.parts) {
      if (part.text !== undefined) content.push({ type: "text", text: part.text });
      if (part.image) content.push({ type: "image_url", image_url: { url: `data:image/png;base64,${part.image}` } });
      if (part.image_url) content.push({ type: "image_url", image_url: { url: part.image_url } });
      if (part.pdf) {
        const file_data = `data:application/pdf;base64,${part.pdf}`;
        content.push({ type: "file", file: { filename: "a.pdf", file_data } });
      }
      if (part.audio) content.push({ type: "input_audio", input_audio: { data: part.audio, format: "wav" } });
      if (part.call) calls.push(chatCall(part.call));
      if (part.result) messages.push({ role: "tool", tool_call_id: part.result.id, content: part.result.text });
    }
    const one = content.length === 1 && content[0].type === "text" ? content[0].text : content;
    if (calls.length) messages.push({ role: "assistant", content: content.length ? one : null, tool_calls: calls });
    else if (content.length) messages.push({ role: message.role, content: one });
  }
  return messages;
}

function chatOptions(ask) {
  const options = {};
  const same = ["max_tokens", "stop", "temperature", "top_p", "seed", "n", "presence_penalty", "frequency_penalty"];
  for (const name of same) if (name in ask) options[name] = ask[name];
  if (ask.tools) options.tools = ask.tools.map((tool) => ({ type: "function", function: schemaTool(tool) }));
  if (ask.choice?.name) options.tool_choice = { type: "function", function: { name: ask.choice.name } };
  else if (ask.choice) options.tool_choice = ask.choice;
  if (ask.json) options.response_format = { type: "json_object" };
  if (ask.schema) {
    options.response_format = { type: "json_schema", json_schema: { name: "trip", schema: ask.schema, strict: true } };
  }
  if (ask.logprobs) Object.assign(options, { logprobs: true, top_logprobs: ask.logprobs });
  if (ask.effort || ask.reasoning) options.reasoning_effort = ask.effort ?? "medium";
  return options;
}

const CHAT_KNOWN = [
  "system", "tools", "choice", "json", "schema", "reasoning", "effort", "stop", "temperature", "top_p", "seed",
  "presence_penalty", "frequency_penalty", "n", "logprobs", "cache",
];
const reasoningIn = (message) => message.reasoning_content ?? message.reasoning ?? "";
const callOf = (call) => [call.function.name, JSON.parse(call.function.arguments)];

async function openaiChat(key) {
  const { default: OpenAI } = await import("openai");
  const api = new OpenAI({ baseURL: `${origin}/v1`, apiKey: key, maxRetries: 0, timeout: TIMEOUT_MS });
  return chatClient(api, (options) => api.chat.completions.create(options));
}

async function groq(key) {
  const { default: Groq } = await import("groq-sdk");
  const api = new Groq({ baseURL: origin, apiKey: key, maxRetries: 0, timeout: TIMEOUT_MS });
  const found = chatClient(api, (options) => api.chat.completions.create(options), {
    known: CHAT_KNOWN.filter((name) => name !== "cache"), kinds: ["image", "image_url"], usage: false,
  });
  return { chat: found.chat };
}

function chatClient(api, create, { known = CHAT_KNOWN, kinds = ["image", "image_url", "pdf", "audio"], usage = true } = {}) {
  async function once(ask, options) {
    if (!ask.stream) {
      const completion = await create(options);
      const [{ message, finish_reason: finish, logprobs }] = completion.choices;
      return [{
        text: message.content ?? "", reasoning: reasoningIn(message), calls: (message.tool_calls ?? []).map(callOf),
        finish, usage: [completion.usage.prompt_tokens, completion.usage.completion_tokens],
        choices: completion.choices.map((choice) => choice.message.content), logprobs: Boolean(logprobs?.content),
      }, message];
    }
    if (ask.usage && usage) options.stream_options = { include_usage: true };
    else if (ask.usage) no("token counts of a stream");
    const texts = [], calls = [];
    let reasoning = "", finish = null, counts = null;
    for await (const chunk of await create({ ...options, stream: true })) {
      if (chunk.usage) counts = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens];
      for (const { delta, finish_reason } of chunk.choices) {
        if (delta.content) texts.push(delta.content);
        if (delta.content && ask.cancel) return [{ text: "" }];
        reasoning += reasoningIn(delta);
        finish = finish_reason ?? finish;
        for (const part of delta.tool_calls ?? []) {
          const call = (calls[part.index] ??= { id: "", name: "", arguments: "" });
          call.id = part.id || call.id;
          call.name += part.function.name ?? "";
          call.arguments += part.function.arguments ?? "";
        }
      }
    }
    if (finish === null) throw new Error("the stream has no end");
    const made = calls.map((call) => ({ ...call, arguments: JSON.parse(call.arguments) }));
    const message = { role: "assistant", content: texts.join("") || null };
    if (made.length) message.tool_calls = made.map(chatCall);
    const answer = { text: texts.join(""), parts: texts.length, reasoning, finish, usage: counts };
    return [{ ...answer, calls: made.map((call) => [call.name, call.arguments]) }, message];
  }
  return {
    async chat(model, ask) {
      only(ask, known, kinds);
      if (ask.operation) no(ask.operation);
      const options = { model, messages: chatMessages(ask), ...chatOptions(ask) };
      const [answer, message] = await once(ask, options);
      if (!ask.loop) return answer;
      const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: ask.loop };
      const [end] = await once(ask, { ...options, messages: [...options.messages, message, result] });
      return { ...end, calls: answer.calls };
    },
    async embed(model, input) {
      return { vectors: (await api.embeddings.create({ model, input })).data.map((each) => each.embedding) };
    },
    async models() {
      return { models: (await api.models.list()).data.map((each) => each.id) };
    },
  };
}

// OpenAI's Responses

async function openaiResponses(key) {
  const { default: OpenAI } = await import("openai");
  const api = new OpenAI({ baseURL: `${origin}/v1`, apiKey: key, maxRetries: 0, timeout: TIMEOUT_MS });
  const known = ["system", "tools", "choice", "json", "schema", "reasoning", "effort", "temperature", "top_p", "logprobs"];

  function items(ask) {
    const found = [];
    for (const message of ask.messages) {
      const content = [];
      for (const part of message.parts) {
        if (part.text !== undefined) content.push({ type: "input_text", text: part.text });
        if (part.image) content.push({ type: "input_image", image_url: `data:image/png;base64,${part.image}` });
        if (part.image_url) content.push({ type: "input_image", image_url: part.image_url });
        if (part.pdf) {
          const file_data = `data:application/pdf;base64,${part.pdf}`;
          content.push({ type: "input_file", filename: "a.pdf", file_data });
        }
        if (part.call) {
          const { id, name } = part.call;
          found.push({ type: "function_call", call_id: id, name, arguments: JSON.stringify(part.call.arguments) });
        }
        if (part.result) {
          const { id, text, image } = part.result;
          const picture = { type: "input_image", image_url: `data:image/png;base64,${image}` };
          const output = image ? [{ type: "input_text", text }, picture] : text;
          found.push({ type: "function_call_output", call_id: id, output });
        }
      }
      if (content.length) {
        found.push({ role: message.role, content: message.role === "assistant" ? content[0].text : content });
      }
    }
    return found;
  }
  function made(ask) {
    const options = { max_output_tokens: ask.max_tokens, store: false };
    for (const name of ["temperature", "top_p"]) if (name in ask) options[name] = ask[name];
    if (ask.system) options.instructions = ask.system;
    if (ask.tools) options.tools = ask.tools.map((tool) => ({ type: "function", strict: false, ...schemaTool(tool) }));
    if (ask.choice) options.tool_choice = ask.choice.name ? { type: "function", name: ask.choice.name } : ask.choice;
    if (ask.json) options.text = { format: { type: "json_object" } };
    if (ask.schema) {
      options.text = { format: { type: "json_schema", name: "trip", schema: ask.schema, strict: true } };
    }
    if (ask.effort) options.reasoning = { effort: ask.effort };
    if (ask.reasoning) {
      options.reasoning = { effort: "medium", summary: "auto" };
      options.include = ["reasoning.encrypted_content"];
    }
    if (ask.logprobs) Object.assign(options, { include: ["message.output_text.logprobs"], top_logprobs: ask.logprobs });
    return options;
  }
  function answerOf(response) {
    const of = (type) => response.output.filter((item) => item.type === type);
    const calls = of("function_call").map((item) => [item.name, JSON.parse(item.arguments)]);
    const reason = response.incomplete_details?.reason;
    const parts = of("message").flatMap((item) => item.content);
    return {
      text: parts.map((part) => part.text ?? "").join(""),
      reasoning: of("reasoning").flatMap((item) => item.summary).map((part) => part.text).join(""),
      calls, finish: reason === "max_output_tokens" ? "length" : reason ?? (calls.length ? "tool_calls" : "stop"),
      usage: response.usage ? [response.usage.input_tokens, response.usage.output_tokens] : null,
      logprobs: parts.some((part) => part.logprobs?.length),
    };
  }
  async function once(ask, options) {
    if (!ask.stream) {
      const response = await api.responses.create(options);
      return [answerOf(response), response.output];
    }
    let response, reasoning = "";
    const texts = [];
    for await (const event of await api.responses.create({ ...options, stream: true })) {
      if (event.type === "response.output_text.delta") texts.push(event.delta);
      if (event.type === "response.output_text.delta" && ask.cancel) return [{ text: "" }];
      if (/reasoning.*text\.delta$/.test(event.type)) reasoning += event.delta;
      if (["response.completed", "response.incomplete"].includes(event.type)) response = event.response;
      if (["response.failed", "error"].includes(event.type)) throw new Error(JSON.stringify(event));
    }
    if (!response) throw new Error("the stream has no end");
    return [{ ...answerOf(response), text: texts.join(""), parts: texts.length, reasoning }, response.output];
  }
  return {
    async chat(model, ask) {
      only(ask, known, ["image", "image_url", "pdf", "result_image"]);
      const options = { model, input: items(ask), ...made(ask) };
      if (ask.operation === "count") {
        return { count: (await api.responses.inputTokens.count({ model, input: options.input })).input_tokens };
      }
      const [answer, output] = await once(ask, options);
      if (!ask.loop) return answer;
      const call = output.find((item) => item.type === "function_call");
      const result = { type: "function_call_output", call_id: call.call_id, output: ask.loop };
      const [end] = await once(ask, { ...options, input: [...options.input, ...output, result] });
      return { ...end, calls: answer.calls };
    },
  };
}

// Anthropic's Messages

async function anthropic(key) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const api = new Anthropic({ baseURL: origin, apiKey: key, maxRetries: 0, timeout: TIMEOUT_MS });
  const known = ["system", "tools", "choice", "schema", "reasoning", "effort", "stop", "cache"];
  const source = (data, media_type) => ({ type: "base64", media_type, data });
  const picture = (data) => ({ type: "image", source: source(data, "image/png") });

  function messages(ask) {
    return ask.messages.map(({ role, parts }) => ({
      role: role === "tool" ? "user" : role,
      content: parts.map((part) => {
        if (part.image) return picture(part.image);
        if (part.image_url) return { type: "image", source: { type: "url", url: part.image_url } };
        if (part.pdf) return { type: "document", source: source(part.pdf, "application/pdf") };
        if (part.call) return { type: "tool_use", id: part.call.id, name: part.call.name, input: part.call.arguments };
        if (part.result) {
          const content = [{ type: "text", text: part.result.text }];
          if (part.result.image) content.push(picture(part.result.image));
          return { type: "tool_result", tool_use_id: part.result.id, content };
        }
        return { type: "text", text: part.text };
      }),
    }));
  }
  function made(ask) {
    const options = { max_tokens: ask.max_tokens };
    const marked = [{ type: "text", text: ask.system, cache_control: { type: "ephemeral" } }];
    if (ask.system) options.system = ask.cache ? marked : ask.system;
    if (ask.stop) options.stop_sequences = ask.stop;
    if (ask.tools) {
      options.tools = ask.tools.map(({ name, description, schema }) => ({ name, description, input_schema: schema }));
    }
    if (ask.choice?.name) options.tool_choice = { type: "tool", name: ask.choice.name };
    else if (ask.choice) options.tool_choice = { type: ask.choice === "required" ? "any" : ask.choice };
    if (ask.schema) options.output_config = { format: { type: "json_schema", schema: ask.schema } };
    if (ask.effort) options.output_config = { effort: ask.effort };
    if (ask.reasoning) Object.assign(options, { thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 4000 });
    return options;
  }
  const FINISH = {
    end_turn: "stop", stop_sequence: "stop", max_tokens: "length", tool_use: "tool_calls", refusal: "content_filter",
  };
  function answerOf(message) {
    const of = (type) => message.content.filter((part) => part.type === type);
    return {
      text: of("text").map((part) => part.text).join(""), reasoning: of("thinking").map((part) => part.thinking).join(""),
      calls: of("tool_use").map((part) => [part.name, part.input]),
      finish: FINISH[message.stop_reason] ?? message.stop_reason,
      usage: [message.usage.input_tokens, message.usage.output_tokens],
    };
  }
  async function once(ask, options) {
    if (!ask.stream) {
      const message = await api.messages.create(options);
      return [answerOf(message), message.content];
    }
    if (ask.cancel) {
      for await (const event of await api.messages.create({ ...options, stream: true })) {
        if (event.type === "content_block_delta") return [{ text: "" }];
      }
    }
    let parts = 0;
    const stream = api.messages.stream(options);
    stream.on("text", () => (parts += 1));
    const message = await stream.finalMessage();
    return [{ ...answerOf(message), parts }, message.content];
  }
  return {
    async chat(model, ask) {
      only(ask, known, ["image", "image_url", "pdf", "result_image"]);
      const options = { model, messages: messages(ask), ...made(ask) };
      if (ask.operation === "count") {
        return { count: (await api.messages.countTokens({ model, messages: options.messages })).input_tokens };
      }
      const [answer, content] = await once(ask, options);
      if (!ask.loop) return answer;
      const call = content.find((part) => part.type === "tool_use");
      const result = { type: "tool_result", tool_use_id: call.id, content: ask.loop };
      const back = [{ role: "assistant", content }, { role: "user", content: [result] }];
      const [end] = await once(ask, { ...options, messages: [...options.messages, ...back] });
      return { ...end, calls: answer.calls };
    },
    async models() {
      return { models: (await api.models.list()).data.map((each) => each.id) };
    },
  };
}

// Google's Gemini

async function googleGenai(key) {
  const { GoogleGenAI } = await import("@google/genai");
  const api = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: origin, timeout: TIMEOUT_MS } });
  const known = [
    "system", "tools", "choice", "json", "schema", "reasoning", "stop", "temperature", "top_p", "top_k", "seed",
    "presence_penalty", "frequency_penalty", "n", "logprobs",
  ];
  const NAMES = {
    max_tokens: "maxOutputTokens", temperature: "temperature", top_p: "topP", top_k: "topK", seed: "seed",
    presence_penalty: "presencePenalty", frequency_penalty: "frequencyPenalty", n: "candidateCount",
    system: "systemInstruction", stop: "stopSequences",
  };
  const inline = (data, mimeType) => ({ inlineData: { mimeType, data } });

  function contents(ask) {
    return ask.messages.map(({ role, parts }) => ({
      role: role === "assistant" ? "model" : "user",
      parts: parts.map((part) => {
        if (part.image) return inline(part.image, "image/png");
        if (part.image_url) return { fileData: { fileUri: part.image_url, mimeType: "image/png" } };
        if (part.pdf) return inline(part.pdf, "application/pdf");
        if (part.audio) return inline(part.audio, "audio/wav");
        if (part.call) return { functionCall: { name: part.call.name, args: part.call.arguments } };
        if (part.result) {
          const functionResponse = { name: part.result.name, response: { result: part.result.text } };
          if (part.result.image) functionResponse.parts = [inline(part.result.image, "image/png")];
          return { functionResponse };
        }
        return { text: part.text };
      }),
    }));
  }
  function config(ask) {
    const made = {};
    for (const [name, own] of Object.entries(NAMES)) if (name in ask) made[own] = ask[name];
    if (ask.tools) {
      const functionDeclarations = ask.tools.map(({ name, description, schema }) => ({
        name, description, parametersJsonSchema: schema,
      }));
      made.tools = [{ functionDeclarations }];
    }
    if (ask.choice) {
      const functionCallingConfig = { mode: ask.choice === "none" ? "NONE" : "ANY" };
      if (ask.choice.name) functionCallingConfig.allowedFunctionNames = [ask.choice.name];
      made.toolConfig = { functionCallingConfig };
    }
    if (ask.json || ask.schema) made.responseMimeType = "application/json";
    if (ask.schema) made.responseJsonSchema = ask.schema;
    if (ask.reasoning) made.thinkingConfig = { includeThoughts: true, thinkingBudget: 2000 };
    if (ask.logprobs) Object.assign(made, { responseLogprobs: true, logprobs: ask.logprobs });
    return made;
  }
  const FINISH = { STOP: "stop", MAX_TOKENS: "length", SAFETY: "content_filter" };
  const partsOf = (chunks) => chunks.flatMap((chunk) => chunk.candidates?.[0]?.content?.parts ?? []);
  function answerOf(chunks) {
    const parts = partsOf(chunks), last = chunks.at(-1), usage = last.usageMetadata;
    const texts = parts.filter((part) => part.text && !part.thought).map((part) => part.text);
    const finish = chunks.map((chunk) => chunk.candidates?.[0]?.finishReason).filter(Boolean).at(-1);
    const all = (candidate) => (candidate.content?.parts ?? []).map((part) => part.text ?? "").join("");
    return {
      text: texts.join(""), parts: texts.length, finish: FINISH[finish] ?? finish,
      reasoning: parts.filter((part) => part.text && part.thought).map((part) => part.text).join(""),
      calls: parts.filter((part) => part.functionCall).map(({ functionCall: { name, args } }) => [name, args]),
      usage: usage && [usage.promptTokenCount, (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0)],
      choices: (last.candidates ?? []).map(all),
      logprobs: chunks.some((chunk) => chunk.candidates?.some((candidate) => candidate.logprobsResult)),
    };
  }
  async function once(ask, request) {
    if (!ask.stream) {
      const response = await api.models.generateContent(request);
      return [answerOf([response]), response.candidates[0].content];
    }
    const chunks = [];
    for await (const chunk of await api.models.generateContentStream(request)) {
      chunks.push(chunk);
      if (ask.cancel) return [{ text: "" }];
    }
    if (!answerOf(chunks).finish) throw new Error("the stream has no end");
    return [answerOf(chunks), { role: "model", parts: partsOf(chunks) }];
  }
  return {
    async chat(model, ask) {
      only(ask, known, ["image", "image_url", "pdf", "audio", "result_image"]);
      const request = { model, contents: contents(ask), config: config(ask) };
      if (ask.operation === "count") {
        return { count: (await api.models.countTokens({ model, contents: request.contents })).totalTokens };
      }
      const [answer, content] = await once(ask, request);
      if (!ask.loop) return answer;
      const response = { functionResponse: { name: "weather", response: { result: ask.loop } } };
      const back = [content, { role: "user", parts: [response] }];
      const [end] = await once(ask, { ...request, contents: [...request.contents, ...back] });
      return { ...end, calls: answer.calls };
    },
    async embed(model, texts) {
      return { vectors: (await api.models.embedContent({ model, contents: texts })).embeddings.map((each) => each.values) };
    },
  };
}

// Ollama

async function ollama(key) {
  const { Ollama } = await import("ollama");
  const api = new Ollama({ host: origin, headers: { authorization: `Bearer ${key}` } });
  const known = [
    "system", "tools", "json", "schema", "reasoning", "effort", "stop", "temperature", "top_p", "top_k", "seed",
    "presence_penalty", "frequency_penalty",
  ];
  const OPTIONS = ["stop", "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"];
  function messages(ask) {
    const found = ask.system ? [{ role: "system", content: ask.system }] : [];
    for (const { role, parts } of ask.messages) {
      const message = { role, content: parts.map((part) => part.text ?? part.result?.text ?? "").join("") };
      const images = parts.map((part) => part.image ?? part.result?.image).filter(Boolean);
      const calls = parts.filter((part) => part.call).map(({ call }) => ({
        function: { name: call.name, arguments: call.arguments },
      }));
      if (images.length) message.images = images;
      if (calls.length) message.tool_calls = calls;
      if (parts[0].result) message.tool_name = parts[0].result.name;
      found.push(message);
    }
    return found;
  }
  function answerOf(chunks) {
    const texts = chunks.map((chunk) => chunk.message.content).filter(Boolean), last = chunks.at(-1);
    return {
      text: texts.join(""), parts: texts.length, finish: last.done_reason,
      reasoning: chunks.map((chunk) => chunk.message.thinking ?? "").join(""),
      calls: chunks.flatMap((chunk) => chunk.message.tool_calls ?? []).map((call) => [
        call.function.name, call.function.arguments,
      ]),
      usage: [last.prompt_eval_count, last.eval_count],
    };
  }
  async function once(ask, request) {
    const chunks = [];
    if (!ask.stream) chunks.push(await api.chat(request));
    else {
      const stream = await api.chat({ ...request, stream: true });
      for await (const chunk of stream) {
        chunks.push(chunk);
        if (ask.cancel) stream.abort();
        if (ask.cancel) return [{ text: "" }];
      }
    }
    if (!chunks.at(-1)?.done) throw new Error("the stream has no end");
    const tool_calls = chunks.flatMap((chunk) => chunk.message.tool_calls ?? []);
    const { text: content, reasoning: thinking } = answerOf(chunks);
    return [answerOf(chunks), { role: "assistant", content, thinking, tool_calls }];
  }
  return {
    async chat(model, ask) {
      only(ask, known, ["image", "result_image"]);
      if (ask.operation) no(ask.operation);
      const options = { num_predict: ask.max_tokens };
      for (const name of OPTIONS) if (name in ask) options[name] = ask[name];
      const request = { model, messages: messages(ask), options };
      if (ask.tools) request.tools = ask.tools.map((tool) => ({ type: "function", function: schemaTool(tool) }));
      if (ask.json || ask.schema) request.format = ask.schema ?? "json";
      if (ask.reasoning || ask.effort) request.think = ask.effort ?? true;
      const [answer, message] = await once(ask, request);
      if (!ask.loop) return answer;
      const result = { role: "tool", tool_name: "weather", content: ask.loop };
      const [end] = await once(ask, { ...request, messages: [...request.messages, message, result] });
      return { ...end, calls: answer.calls };
    },
    async embed(model, input) {
      return { vectors: (await api.embed({ model, input })).embeddings };
    },
    async models() {
      return { models: (await api.list()).models.map((each) => each.name) };
    },
  };
}

// Vercel's AI SDK

function ai(make, { known = [], kinds = [], options = () => ({}), embedding = null }) {
  return async (key) => {
    const { embedMany, generateText, jsonSchema, Output, streamText, tool } = await import("ai");
    const provider = await make(key);

    function messages(ask) {
      return ask.messages.map(({ role, parts }) => ({
        role,
        content: parts.map((part) => {
          const file = (data, mediaType) => ({ type: "file", data, mediaType });
          if (part.image) return file(part.image, "image/png");
          if (part.image_url) return { type: "image", image: new URL(part.image_url) };
          if (part.pdf) return { ...file(part.pdf, "application/pdf"), filename: "a.pdf" };
          if (part.audio) return file(part.audio, "audio/wav");
          if (part.call) {
            const { id, name, arguments: input } = part.call;
            return { type: "tool-call", toolCallId: id, toolName: name, input };
          }
          if (part.result) {
            const { id, name, text, image } = part.result;
            const value = [{ type: "text", text }, file({ type: "data", data: image }, "image/png")];
            const output = image ? { type: "content", value } : { type: "text", value: text };
            return { type: "tool-result", toolCallId: id, toolName: name, output };
          }
          return { type: "text", text: part.text };
        }),
      }));
    }
    const NAMES = {
      system: "system", max_tokens: "maxOutputTokens", temperature: "temperature", top_p: "topP", top_k: "topK",
      seed: "seed", stop: "stopSequences", presence_penalty: "presencePenalty", frequency_penalty: "frequencyPenalty",
    };
    function request(model, ask) {
      const made = { model: provider(model), messages: messages(ask), maxRetries: 0, providerOptions: options(ask) };
      for (const [name, own] of Object.entries(NAMES)) if (name in ask) made[own] = ask[name];
      if (ask.reasoning) made.maxOutputTokens = 4000;
      if (ask.tools) {
        made.tools = Object.fromEntries(ask.tools.map(({ name, description, schema }) => [
          name, tool({ description, inputSchema: jsonSchema(schema) }),
        ]));
      }
      if (ask.choice) made.toolChoice = ask.choice.name ? { type: "tool", toolName: ask.choice.name } : ask.choice;
      if (ask.schema) made.output = Output.object({ schema: jsonSchema(ask.schema) });
      if (ask.json) made.output = Output.json();
      return made;
    }
    const FINISH = { "tool-calls": "tool_calls", "content-filter": "content_filter" };
    async function once(ask, made) {
      let result, parts = null, failed = null;
      if (!ask.stream) result = await generateText(made);
      else {
        const controller = new AbortController();
        const onError = ({ error }) => (failed = error);
        result = streamText({ ...made, abortSignal: controller.signal, onError });
        parts = 0;
        for await (const _ of result.textStream) {
          parts += 1;
          if (ask.cancel) controller.abort();
          if (ask.cancel) return [{ text: "" }];
        }
        if (failed) throw failed;
      }
      const calls = (await result.toolCalls).map((call) => [call.toolName, call.input]);
      const usage = await result.usage, finish = await result.finishReason;
      if (finish === "error") throw new Error("the stream ended with an error");
      const answer = {
        text: await result.text, reasoning: (await result.reasoningText) ?? "", calls, finish: FINISH[finish] ?? finish,
        usage: [usage.inputTokens, usage.outputTokens],
      };
      if (parts !== null) answer.parts = parts;
      if (ask.schema || ask.json) answer.object = await result.output;
      return [answer, (await result.response).messages, await result.toolCalls];
    }
    return {
      async chat(model, ask) {
        const shared = ["system", "tools", "choice", "schema", "json", "stop", "temperature", "top_p"];
        only(ask, [...shared, ...known], kinds);
        if (ask.operation) no(ask.operation);
        const made = request(model, ask);
        const [answer, back, calls] = await once(ask, made);
        if (!ask.loop) return answer;
        const { toolCallId, toolName } = calls[0];
        const result = { type: "tool-result", toolCallId, toolName, output: { type: "text", value: ask.loop } };
        const messages = [...made.messages, ...back, { role: "tool", content: [result] }];
        const [end] = await once(ask, { ...made, messages });
        return { ...end, calls: answer.calls };
      },
      async embed(model, values) {
        if (!embedding) no("embeddings");
        return { vectors: (await embedMany({ model: embedding(provider)(model), values, maxRetries: 0 })).embeddings };
      },
    };
  };
}

const PENALTIES = ["seed", "presence_penalty", "frequency_penalty"];
const MEDIA = ["image", "image_url", "pdf"];
const aiClients = {
  "ai with @ai-sdk/openai": ai(
    async (key) => {
      const { createOpenAI } = await import("@ai-sdk/openai");
      const provider = createOpenAI({ baseURL: `${origin}/v1`, apiKey: key });
      return Object.assign((name) => provider.chat(name), { provider });
    },
    {
      known: [...PENALTIES, "effort"], kinds: [...MEDIA, "audio"],
      options: (ask) => (ask.effort ? { openai: { reasoningEffort: ask.effort } } : {}),
      embedding: ({ provider }) => (name) => provider.embedding(name),
    },
  ),
  "ai with @ai-sdk/openai responses": ai(
    async (key) => {
      const { createOpenAI } = await import("@ai-sdk/openai");
      const provider = createOpenAI({ baseURL: `${origin}/v1`, apiKey: key });
      return (name) => provider.responses(name);
    },
    {
      known: ["effort", "reasoning"], kinds: [...MEDIA, "result_image"],
      options(ask) {
        if (ask.stop) no("stop");
        const openai = { store: false };
        if (ask.effort || ask.reasoning) Object.assign(openai, { reasoningEffort: ask.effort ?? "medium", forceReasoning: true });
        if (ask.reasoning) openai.reasoningSummary = "auto";
        return { openai };
      },
    },
  ),
  "ai with @ai-sdk/anthropic": ai(
    async (key) => {
      const { createAnthropic } = await import("@ai-sdk/anthropic");
      return createAnthropic({ baseURL: `${origin}/v1`, apiKey: key });
    },
    {
      known: ["top_k", "effort", "reasoning"], kinds: [...MEDIA, "result_image"],
      options(ask) {
        if (ask.json) no("json");
        if (ask.top_p && ask.temperature) no("temperature with top_p");
        if (ask.effort) return { anthropic: { effort: ask.effort } };
        return ask.reasoning ? { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } } : {};
      },
    },
  ),
  "ai with @ai-sdk/google": ai(
    async (key) => {
      const { createGoogleGenerativeAI } = await import("@ai-sdk/google");
      return createGoogleGenerativeAI({ baseURL: `${origin}/v1beta`, apiKey: key });
    },
    {
      known: [...PENALTIES, "top_k", "reasoning"], kinds: ["image", "pdf", "audio", "result_image"],
      options(ask) {
        if (ask.schema) no("a schema whose enum has numbers: the client makes them texts");
        return ask.reasoning ? { google: { thinkingConfig: { includeThoughts: true, thinkingBudget: 2000 } } } : {};
      },
      embedding: (provider) => (name) => provider.embedding(name),
    },
  ),
  "ai with @ai-sdk/openai-compatible": ai(
    async (key) => {
      const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
      return createOpenAICompatible({
        name: "splitsecond", baseURL: `${origin}/v1`, apiKey: key, includeUsage: true, supportsStructuredOutputs: true,
      });
    },
    {
      known: [...PENALTIES, "effort", "reasoning"], kinds: ["image", "pdf", "audio"],
      options(ask) {
        const reasoningEffort = ask.effort ?? (ask.reasoning && "medium");
        return reasoningEffort ? { splitsecond: { reasoningEffort } } : {};
      },
      embedding: (provider) => (name) => provider.textEmbeddingModel(name),
    },
  ),
  "ai with @openrouter/ai-sdk-provider": ai(
    async (key) => {
      const { createOpenRouter } = await import("@openrouter/ai-sdk-provider");
      return createOpenRouter({ baseURL: `${origin}/api/v1`, apiKey: key, compatibility: "strict" });
    },
    {
      known: [...PENALTIES, "top_k", "effort", "reasoning"], kinds: [...MEDIA, "audio"],
      options(ask) {
        const effort = ask.effort ?? (ask.reasoning && "medium");
        return effort ? { openrouter: { reasoning: { effort } } } : {};
      },
    },
  ),
};

// OpenRouter's SDK, with names in camel case

async function openrouter(key) {
  const { OpenRouter } = await import("@openrouter/sdk");
  const api = new OpenRouter({ apiKey: key, serverURL: `${origin}/api/v1`, retryConfig: { strategy: "none" } });
  const camel = (value) => {
    if (Array.isArray(value)) return value.map(camel);
    if (value === null || typeof value !== "object") return value;
    const named = ([name, inner]) => {
      const own = name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
      return [own, ["parameters", "schema", "input_schema"].includes(name) ? inner : camel(inner)];
    };
    return Object.fromEntries(Object.entries(value).map(named));
  };
  const snake = (value) => {
    if (Array.isArray(value)) return value.map(snake);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), snake(inner),
    ]));
  };
  async function create(options) {
    const answer = await api.chat.send({ chatRequest: camel(options) });
    if (!options.stream) return snake(answer);
    return (async function* () {
      for await (const chunk of answer) yield snake(chunk);
    })();
  }
  const known = CHAT_KNOWN.filter((name) => name !== "n");
  return { chat: chatClient(api, create, { known }).chat };
}

// LangChain

function langchain(make, { known = [], kinds = [], wholeSchema = false }) {
  return async (key) => {
    const { AIMessage, HumanMessage, SystemMessage, ToolMessage } = await import("@langchain/core/messages");
    function messages(ask) {
      const found = ask.system ? [new SystemMessage(ask.system)] : [];
      for (const { role, parts } of ask.messages) {
        const content = [], tool_calls = [];
        for (const part of parts) {
          const block = (type, data, mime_type) => ({ type, source_type: "base64", data, mime_type });
          if (part.text !== undefined) content.push({ type: "text", text: part.text });
          const url = part.image ? `data:image/png;base64,${part.image}` : part.image_url;
          if (url) content.push({ type: "image_url", image_url: { url } });
          if (part.pdf) content.push({ ...block("file", part.pdf, "application/pdf"), metadata: { filename: "a.pdf" } });
          if (part.audio) content.push(block("audio", part.audio, "audio/wav"));
          if (part.call) tool_calls.push({ id: part.call.id, name: part.call.name, args: part.call.arguments });
          if (part.result) {
            found.push(new ToolMessage({ content: part.result.text, tool_call_id: part.result.id, name: part.result.name }));
          }
        }
        const one = content.length === 1 && content[0].type === "text" ? content[0].text : content;
        if (role === "user") found.push(new HumanMessage({ content: one }));
        if (role === "assistant") found.push(new AIMessage({ content: content.length ? one : "", tool_calls }));
      }
      return found;
    }
    const FINISH = {
      end_turn: "stop", STOP: "stop", stop_sequence: "stop", max_tokens: "length", MAX_TOKENS: "length",
      refusal: "content_filter", SAFETY: "content_filter", tool_use: "tool_calls",
    };
    function answerOf(message) {
      const about = { ...message.additional_kwargs, ...message.response_metadata };
      const finish = about.finish_reason ?? about.stop_reason ?? about.finishReason ?? about.done_reason ?? "stop";
      const usage = message.usage_metadata;
      const blocks = message.contentBlocks ?? [];
      return {
        text: message.text, calls: (message.tool_calls ?? []).map((call) => [call.name, call.args]),
        reasoning: blocks.filter((block) => block.type === "reasoning").map((block) => block.reasoning).join(""),
        finish: FINISH[finish] ?? finish, usage: usage && [usage.input_tokens, usage.output_tokens],
      };
    }
    async function once(ask, model, messages, options) {
      if (!ask.stream) {
        const message = await model.invoke(messages, options);
        return [answerOf(message), message];
      }
      let whole, parts = 0;
      for await (const chunk of await model.stream(messages, options)) {
        whole = whole ? whole.concat(chunk) : chunk;
        if (chunk.text) parts += 1;
        if (chunk.text && ask.cancel) return [{ text: "" }];
      }
      return [{ ...answerOf(whole), parts }, whole];
    }
    return {
      async chat(name, ask) {
        only(ask, ["system", "tools", "choice", "schema", "stop", "temperature", "top_p", ...known], kinds);
        if (ask.operation) no(ask.operation);
        let model = await make(name, ask, key), options = ask.stop ? { stop: ask.stop } : {};
        if (ask.tools) {
          const tools = ask.tools.map((tool) => ({ type: "function", function: schemaTool(tool) }));
          const choice = ask.choice?.name ?? (ask.choice === "required" ? "any" : ask.choice);
          model = model.bindTools(tools, choice ? { tool_choice: choice } : {});
        }
        if (ask.schema) {
          const bound = model.withStructuredOutput({ title: "trip", ...ask.schema }, { name: "trip" });
          if (!ask.stream) return { object: await bound.invoke(messages(ask)) };
          if (wholeSchema) no("a schema in a stream: the client parses its empty beginning");
          let object;
          for await (const part of await bound.stream(messages(ask))) object = part;
          return { object };
        }
        const [answer, message] = await once(ask, model, messages(ask), options);
        if (!ask.loop) return answer;
        const result = new ToolMessage({ content: ask.loop, tool_call_id: message.tool_calls[0].id, name: "weather" });
        const [end] = await once(ask, model, [...messages(ask), message, result], options);
        return { ...end, calls: answer.calls };
      },
    };
  };
}

const sampling = (ask) => ({ temperature: ask.temperature, topP: ask.top_p, topK: ask.top_k });
const langchainClients = {
  "@langchain/openai": langchain(
    async (model, ask, apiKey) => {
      const { ChatOpenAI } = await import("@langchain/openai");
      const { topK, ...rest } = sampling(ask);
      return new ChatOpenAI({
        model, apiKey, configuration: { baseURL: `${origin}/v1` }, maxRetries: 0, maxTokens: ask.max_tokens, ...rest,
        presencePenalty: ask.presence_penalty, frequencyPenalty: ask.frequency_penalty,
        modelKwargs: ask.seed ? { seed: ask.seed } : {},
      });
    },
    { known: [...PENALTIES], kinds: [...MEDIA, "audio"] },
  ),
  "@langchain/anthropic": langchain(
    async (model, ask, apiKey) => {
      const { ChatAnthropic } = await import("@langchain/anthropic");
      const thinking = ask.reasoning ? { type: "enabled", budget_tokens: 1024 } : undefined;
      return new ChatAnthropic({
        model, apiKey, anthropicApiUrl: origin, maxRetries: 0, maxTokens: ask.reasoning ? 4000 : ask.max_tokens,
        ...sampling(ask), ...(thinking ? { thinking } : {}),
      });
    },
    { known: ["top_k", "reasoning"], kinds: ["image", "image_url"], wholeSchema: true },
  ),
  "@langchain/google-genai": langchain(
    async (model, ask, apiKey) => {
      const { ChatGoogleGenerativeAI } = await import("@langchain/google-genai");
      if (ask.stop) no("stop, in a call");
      return new ChatGoogleGenerativeAI({
        model, apiKey, baseUrl: origin, maxRetries: 0, maxOutputTokens: ask.max_tokens, ...sampling(ask),
        json: ask.json,
      });
    },
    { known: ["top_k", "json"] },
  ),
  "@langchain/ollama": langchain(
    async (model, ask, key) => {
      const { ChatOllama } = await import("@langchain/ollama");
      if (ask.choice) no("choice");
      return new ChatOllama({
        model, baseUrl: origin, headers: { authorization: `Bearer ${key}` }, numPredict: ask.max_tokens, maxRetries: 0,
        ...sampling(ask), seed: ask.seed, think: ask.reasoning, format: ask.json ? "json" : undefined, stop: ask.stop,
      });
    },
    { known: ["top_k", "seed", "json", "reasoning"], kinds: ["image"] },
  ),
};

const CLIENTS = {
  "openai for JavaScript": openaiChat,
  "openai responses for JavaScript": openaiResponses,
  "groq-sdk": groq,
  "@anthropic-ai/sdk": anthropic,
  "@google/genai": googleGenai,
  "ollama for JavaScript": ollama,
  "@openrouter/sdk": openrouter,
  ...aiClients,
  ...langchainClients,
};

function failure(error) {
  const chain = [];
  for (let each = error; each && !chain.includes(each); each = each.cause ?? each.lastError) chain.push(each);
  const kinds = [];
  for (let kind = Object.getPrototypeOf(error); kind?.constructor?.name; kind = Object.getPrototypeOf(kind)) {
    kinds.push(kind.constructor.name);
  }
  const numbers = chain.flatMap((each) => [each.status, each.statusCode, each.status_code, each.code]);
  const words = chain.map((each) => `${each.message ?? JSON.stringify(each)} ${each.responseBody ?? each.body ?? ""}`);
  return {
    kinds: [...new Set([error.name, ...kinds])], status: numbers.find((each) => typeof each === "number") ?? null,
    message: words.join(" | ").slice(0, 2000),
  };
}

async function tried({ model, ask }) {
  try {
    const api = await CLIENTS[client](ask.key ?? key);
    if (ask.operation === "embed") return api.embed ? { answer: await api.embed(model, ask.texts) } : { unsupported: "embed" };
    if (ask.operation === "models") return api.models ? { answer: await api.models() } : { unsupported: "models" };
    return { answer: await api.chat(model, ask) };
  } catch (error) {
    return error instanceof Unsupported ? { unsupported: error.message } : { failure: failure(error) };
  }
}

process.on("unhandledRejection", () => {}); // of promises that nobody awaits after a cancellation
for await (const line of createInterface({ input: process.stdin })) {
  const began = performance.now();
  const result = await tried(JSON.parse(line));
  console.log(JSON.stringify({ result: { ...result, seconds: (performance.now() - began) / 1000 } }));
}
process.exit(0);
