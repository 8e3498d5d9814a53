// Command terminal writes an SVG of a terminal to standard output, with a command and what it prints as the Markdown
// text on standard input shows them:
//
//	go run ./hack/terminal 'kubectl gang topology' < docs/kubectl-gang.md > docs/pictures/terminal-topology.svg
package main

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-sh/lockstep/test/helpers/transcript"
)

// The size of a character, and of what is left free around the text, in pixels.
const (
	columnWidth, lineHeight = 8.4, 20
	margin                  = 16
)

// head is the picture up to its first line of text. The colours are those of the reader's browser, light or dark.
const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="title desc">
<!-- Drawn by hack/terminal: make generate. -->
<title id="title">%[3]s</title>
<desc id="desc">%[4]s</desc>
<style>
  rect { fill: #f6f8fa; stroke: #d0d7de; }
  text { fill: #1f2328; font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
  .command { font-weight: bold; }
  @media (prefers-color-scheme: dark) {
    rect { fill: #151b23; stroke: #3d444d; }
    text { fill: #f0f6fc; }
  }
</style>
<rect x="0.5" y="0.5" width="%[5]d" height="%[6]d" rx="8"/>
`

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string, markdown io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: terminal COMMAND < MARKDOWN")
	}
	text, err := io.ReadAll(markdown)
	if err != nil {
		return fmt.Errorf("reading the text: %w", err)
	}
	commands := transcript.Of(string(text))
	at := slices.IndexFunc(commands, func(c transcript.Command) bool { return c.Line == args[0] })
	if at < 0 {
		return fmt.Errorf("the text does not show %q", args[0])
	}
	_, err = io.WriteString(out, draw(commands[at]))
	return err
}

// draw returns the picture.
func draw(c transcript.Command) string {
	lines := append([]string{"$ " + c.Line}, strings.Split(strings.TrimRight(c.Output, "\n"), "\n")...)
	columns := 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(line))
	}
	width, height := int(float64(columns)*columnWidth)+2*margin, len(lines)*lineHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, head, width, height, html.EscapeString(c.Line), html.EscapeString(c.Output), width-1, height-1)
	for i, line := range lines {
		if line == "" {
			continue
		}
		class := ""
		if i == 0 {
			class = ` class="command"`
		}
		// With textLength columns stay below each other, whatever font the reader has.
		fmt.Fprintf(&b, "<text%s x=\"%d\" y=\"%d\" textLength=\"%.1f\" xml:space=\"preserve\">%s</text>\n", class, margin,
			margin+i*lineHeight+15,
			float64(utf8.RuneCountInString(line))*columnWidth, html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
