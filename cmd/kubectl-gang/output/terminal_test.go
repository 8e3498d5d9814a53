package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// hostile is text that controls a terminal: colours, a title, C1, a carriage return, a bell, bidirectional overrides.
const hostile = "a\x1b[31mb\x1b]0;title\x07c\u009b2Jd\re\u202ef\u2066g\u200fh\u2028i\x7fj\bk"

// TestTerminal: no text controls the terminal, however it is cut into writes.
func TestTerminal(t *testing.T) {
	const text = hostile + "é\n\t" + "\x9b" + "z"
	const want = `a\u001b[31mb\u001b]0;title\u0007c\u009b2Jd\u000de\u202ef\u2066g\u200fh\u2028i\u007fj\u0008k` + "é\n\t\ufffdz"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		streams := Clean(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if wrote, err := streams.Out.Write([]byte(rest[:n])); err != nil || wrote != n {
				t.Fatalf("%d of %d are written (%v)", wrote, n, err)
			}
			rest = rest[n:]
		}
		if out.String() != want {
			t.Errorf("in writes of %d: %q, want %q", size, out.String(), want)
		}
	}
}

// TestHostileCells: in no format does a cell control the terminal; colours are still ours, and JSON keeps the value.
func TestHostileCells(t *testing.T) {
	for _, format := range []string{"", "wide", "json", "yaml", "go-template={{range .items}}{{.name}}{{end}}"} {
		for _, coloured := range []bool{false, true} {
			f, cmd := &flags{}, &cobra.Command{}
			f.addTo(cmd)
			must.Succeed(t, cmd.ParseFlags([]string{"--output=" + format}))
			name := hostile
			if format == "yaml" { // which cannot have these, and fails
				name = strings.NewReplacer("\u009b", "", "\x7f", "").Replace(name)
			}
			var out bytes.Buffer
			p, err := f.printer(Clean(genericiooptions.IOStreams{Out: &out}).Out)
			must.Succeed(t, err)
			p.coloured = coloured
			must.Succeed(t, Print(p, "ItemList", columns(), []item{{name, "Running", 7}}))
			text := out.String()
			if strings.Contains(text, green+"Running"+plain) != (coloured && p.IsTable()) {
				t.Errorf("%q, coloured %t: %q", format, coloured, text)
			}
			text = strings.ReplaceAll(text, green+"Running"+plain, "Running")
			if i := strings.IndexFunc(text, func(r rune) bool {
				return r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
			}); i >= 0 {
				t.Errorf("%q: it controls the terminal: %q", format, text[i:])
			}
			var read struct{ Items []item }
			if format == "json" && (json.Unmarshal([]byte(text), &read) != nil || read.Items[0].Name != hostile) {
				t.Errorf("JSON has %q", text)
			}
		}
	}
}
