// Package gangdocs checks that docs say what the programs of kubectl gang do.
package gangdocs

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
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

// Fields checks that docs list the fields of what is printed as data, by the beginning of the row of
// docs/kubectl-gang.md that has them.
func Fields(t *testing.T, values map[string]any) {
	t.Helper()
	doc := read(t, "kubectl-gang.md")
	for row, value := range values {
		_, after, found := strings.Cut(doc, "| "+row)
		if !found {
			t.Errorf("docs do not have the fields of %s", row)
			continue
		}
		line, _, _ := strings.Cut(strings.TrimLeft(after, " |"), "\n")
		told := map[string]bool{}
		for _, name := range regexp.MustCompile("`([a-zA-Z]+)`").FindAllStringSubmatch(line, -1) {
			told[name[1]] = true
		}
		if diff := cmp.Diff(fieldsOf(value), slices.Sorted(maps.Keys(told))); diff != "" {
			t.Errorf("fields of %s (-are +docs):\n%s", row, diff)
		}
	}
}

func fieldsOf(value any) (names []string) {
	of := reflect.TypeOf(value)
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
