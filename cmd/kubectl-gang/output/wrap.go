package output

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// plainWidth is how wide text is where there is no terminal.
const plainWidth = 100

// width returns how wide text to w may be.
func width(w io.Writer) int {
	if terminal, ok := w.(*Terminal); ok {
		w = terminal.to
	}
	if file, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return plainWidth
}

// Wrap writes a line of text, and goes on in the next line where it is too long for the terminal.
func Wrap(w io.Writer, text string) error {
	if _, err := io.WriteString(w, wrap(text, width(w))); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// wrap breaks a line between words. The lines that follow are indented by two more than the first.
func wrap(text string, width int) string {
	indent := strings.Repeat(" ", len(text)-len(strings.TrimLeft(text, " ")))
	var b strings.Builder
	b.WriteString(indent)
	at := len(indent)
	for i, word := range strings.Fields(text) {
		long := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+long > width:
			b.WriteString("\n" + indent + "  ")
			at = len(indent) + 2
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += long
	}
	return b.String() + "\n"
}
