// Package gangdocs checks that docs say what the programs of kubectl gang do.
package gangdocs

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name)) // from the folder of the program
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Commands checks that the command lines of docs/agents.md are those of a program, with their flags and as many
// arguments as they take; of commands that are not to be looked at it checks nothing. It returns how many it checked.
func Commands(t *testing.T, program func() *cobra.Command, looksAt func(*cobra.Command) bool) (n int) {
	t.Helper()
	for line := range strings.Lines(read(t, "agents.md")) {
		text, isCommand := strings.CutPrefix(strings.TrimSpace(line), "kubectl gang ")
		if !isCommand {
			continue
		}
		root := program()
		cmd, args, err := root.Find(strings.Fields(text))
		if !looksAt(cmd) {
			continue
		}
		n++
		if err == nil && cmd == root {
			t.Errorf("kubectl gang %s: there is no such command", text)
			continue
		}
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("kubectl gang %s: %v", text, err)
		}
	}
	return n
}

// Fields checks that docs list the fields of what is printed as data, and their types, by the beginning of the item of
// docs/kubectl-gang.md that has them.
func Fields(t *testing.T, values map[string]any) {
	t.Helper()
	doc := read(t, "kubectl-gang.md")
	items := regexp.MustCompile(`\n+ *- |\n\n`).Split(doc, -1)
	for item, value := range values {
		i := slices.IndexFunc(items, func(text string) bool { return strings.HasPrefix(text, item) })
		if i < 0 {
			t.Errorf("docs do not have the fields of %s", item)
			continue
		}
		want := map[string]string{}
		addFields(want, reflect.TypeOf(value))
		if diff := cmp.Diff(want, documented(items[i])); diff != "" {
			t.Errorf("fields of %s (-are +docs):\n%s", item, diff)
		}
	}
}

// documented returns the types of fields by their names, as an item says them: string `a`, `b` (a meaning); time `c`.
func documented(text string) map[string]string {
	types := map[string]string{}
	_, text, _ = strings.Cut(withoutMeanings(text), ":")
	for part := range strings.SplitSeq(text, ";") {
		kind, names, _ := strings.Cut(part, "`")
		for _, name := range regexp.MustCompile("`([a-zA-Z]+)`").FindAllStringSubmatch("`"+names, -1) {
			types[name[1]] = strings.Join(strings.Fields(kind), " ")
		}
	}
	return types
}

// withoutMeanings returns a text without what stands in parentheses.
func withoutMeanings(text string) string {
	var b strings.Builder
	depth := 0
	for _, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// addFields adds the types of the fields of a struct by their names, those of embedded structs too.
func addFields(types map[string]string, of reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case options == "inline":
			addFields(types, field.Type)
		case name != "" && name != "-":
			types[name] = typeOf(field.Type)
		}
	}
}

// typeOf returns what docs call a type.
func typeOf(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "time"
	case reflect.TypeFor[resource.Quantity]():
		return "quantity"
	}
	switch of.Kind() {
	case reflect.Pointer:
		return typeOf(of.Elem())
	case reflect.Slice:
		return plural(typeOf(of.Elem()))
	case reflect.Map:
		return "map of " + plural(typeOf(of.Elem()))
	case reflect.Struct:
		return "object"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer"
	default:
		return of.String()
	}
}

func plural(name string) string {
	if stem, ok := strings.CutSuffix(name, "y"); ok {
		return stem + "ies"
	}
	return name + "s"
}
