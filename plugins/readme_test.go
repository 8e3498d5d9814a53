package plugins

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReadmesNameWhatUsersSee: every metric and every reason of an event or a condition that the code has is in the text
// about its plugin, or in docs/.
func TestReadmesNameWhatUsersSee(t *testing.T) {
	docs := texts(t, filepath.Join("..", "docs"))
	err := filepath.WalkDir(".", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		said := docs + texts(t, dir) + texts(t, filepath.Dir(dir))
		for _, name := range seen(t, dir) {
			if !strings.Contains(said, name) {
				t.Errorf("%s: no README says what %s means", dir, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range seen(t, filepath.Join("..", "apis", "scheduling", "v1alpha1")) {
		if !strings.Contains(docs+texts(t, ".")+everyReadme(t), name) {
			t.Errorf("no README says what reason %s means", name)
		}
	}
}

func everyReadme(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("*", "README.md"))
	if err != nil || len(files) == 0 {
		t.Fatal("there are no READMEs", err)
	}
	all := ""
	for _, file := range files {
		all += texts(t, filepath.Dir(file))
	}
	return all
}

// texts is what the Markdown files of a folder say.
func texts(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	return all
}

var reason = regexp.MustCompile(`^(Event|Reason)[A-Z]`)

// seen are the names of metrics and the values of constants that are reasons, in the code of a folder.
func seen(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CompositeLit:
				if name := metricOf(n); name != "" {
					names = append(names, name)
				}
			case *ast.ValueSpec:
				for i, constant := range n.Names {
					if reason.MatchString(constant.Name) && i < len(n.Values) {
						if value := text(n.Values[i]); value != "" {
							names = append(names, value)
						}
					}
				}
			}
			return true
		})
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// metricOf is the name of a metric that the options of a literal make; empty if they make none.
func metricOf(literal *ast.CompositeLit) string {
	kind, ok := literal.Type.(*ast.SelectorExpr)
	if !ok || !strings.HasSuffix(kind.Sel.Name, "Opts") {
		return ""
	}
	parts := map[string]string{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				parts[key.Name] = text(pair.Value)
			}
		}
	}
	if parts["Name"] == "" {
		return ""
	}
	return strings.TrimPrefix(parts["Subsystem"]+"_"+parts["Name"], "_")
}

// text is the value of a string literal; empty for anything else.
func text(expression ast.Expr) string {
	literal, ok := expression.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return value
}
