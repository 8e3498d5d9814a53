package verifydocs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// roots are the folders of the product's code.
var roots = []string{"apis", "cmd", "pkg", "plugins"}

// TestMain runs the tests at the top of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	m.Run()
}

// TestReadmesNameWhatUsersSee: every reason of an event or a condition in the code is in the text about its plugin or
// command, or in docs/. What is in pkg and the API is in any of the texts.
func TestReadmesNameWhatUsersSee(t *testing.T) {
	docs, all := texts(t, "docs"), everyReadme(t)
	count := 0
	for _, root := range roots {
		for _, dir := range folders(t, root) {
			said := docs + texts(t, dir) + texts(t, filepath.Dir(dir))
			if root == "pkg" || root == "apis" {
				said = docs + all
			}
			names := reasonsOf(t, dir)
			count += len(names)
			for _, name := range names {
				if !strings.Contains(said, name) {
					t.Errorf("%s: no README says what %s means", dir, name)
				}
			}
		}
	}
	if count < 40 {
		t.Errorf("%d reasons are found in all: they are not where this test looks", count)
	}
}

// TestEventsStandTogether: the events of a plugin are in one file, and their reason is a constant of it, or that of a
// condition.
func TestEventsStandTogether(t *testing.T) {
	count := 0
	for _, dir := range folders(t, "plugins") {
		inspect(t, dir, func(file string, node ast.Node) {
			literal, ok := node.(*ast.CompositeLit)
			if !ok {
				return
			}
			if kind, ok := literal.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "Event" || !isNamed(kind.X, "status") {
				return
			}
			count++
			if filepath.Base(file) != "events.go" {
				t.Errorf("%s makes an event: events.go is the file for that", file)
			}
			if reason := text(fieldsOf(literal)["Reason"]); reason != "" {
				t.Errorf("%s: reason %q is no constant", file, reason)
			}
		})
	}
	if count == 0 {
		t.Error("no events are found: they are not where this test looks")
	}
}

// folders returns the folders below a folder, including itself.
func folders(t *testing.T, root string) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func everyReadme(t *testing.T) string {
	t.Helper()
	all := ""
	for _, root := range roots {
		for _, dir := range folders(t, root) {
			all += texts(t, dir)
		}
	}
	if all == "" {
		t.Fatal("there are no READMEs")
	}
	return all
}

// texts returns the text of the Markdown files of a folder.
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

// inspect calls see with every node of the code of a folder, except tests.
func inspect(t *testing.T, dir string, see func(file string, node ast.Node)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			see(file, node)
			return true
		})
	}
}

// fieldsOf returns the values of a literal, by the names of fields.
func fieldsOf(literal *ast.CompositeLit) map[string]ast.Expr {
	fields := map[string]ast.Expr{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				fields[key.Name] = pair.Value
			}
		}
	}
	return fields
}

func isNamed(expression ast.Expr, name string) bool {
	ident, ok := expression.(*ast.Ident)
	return ok && ident.Name == name
}

// joined returns the value of string literals and constants that are added up; empty for anything else.
func joined(expression ast.Expr, constants map[string]string) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return constants[e.Name]
	case *ast.BinaryExpr:
		left, right := joined(e.X, constants), joined(e.Y, constants)
		if e.Op != token.ADD || left == "" || right == "" {
			return ""
		}
		return left + right
	default:
		return text(expression)
	}
}

// text returns the value of a string literal; empty for anything else.
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
