// Render a Helm chart as `helm template RELEASE CHART --values FILE` does, for machines without helm.
//
//	go run render.go RELEASE CHART [VALUES]
//
// It uses the libraries that helm uses: Go's templates, sprig and sigs.k8s.io/yaml. Values are not checked
// by values.schema.json, and charts cannot have dependencies.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func load(file string) map[string]interface{} {
	found := map[string]interface{}{}
	text, err := os.ReadFile(file)
	check(err)
	check(yaml.Unmarshal(text, &found))
	return found
}

// merge writes the values of `over` into `under`.
func merge(under, over map[string]interface{}) {
	for name, value := range over {
		inner, nested := value.(map[string]interface{})
		old, same := under[name].(map[string]interface{})
		if nested && same {
			merge(old, inner)
		} else {
			under[name] = value
		}
	}
}

func main() {
	release, chart := os.Args[1], os.Args[2]
	values, about := load(filepath.Join(chart, "values.yaml")), load(filepath.Join(chart, "Chart.yaml"))
	if len(os.Args) > 3 {
		merge(values, load(os.Args[3]))
	}
	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		check(err)
		return strings.TrimSuffix(string(text), "\n")
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	all.Funcs(functions)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		_, err = all.New(filepath.Base(file)).Parse(string(text))
		check(err)
	}
	data := map[string]interface{}{
		"Values":  values,
		"Chart":   map[string]interface{}{"Name": about["name"], "AppVersion": about["appVersion"]},
		"Release": map[string]interface{}{"Name": release, "Namespace": "default", "Service": "Helm"},
	}
	for _, file := range files {
		var text strings.Builder
		check(all.ExecuteTemplate(&text, filepath.Base(file), data))
		if strings.HasSuffix(file, ".yaml") && strings.TrimSpace(text.String()) != "" {
			fmt.Printf("---\n%s", strings.TrimLeft(text.String(), "\n"))
		}
	}
}
