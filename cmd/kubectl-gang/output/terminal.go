package output

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Terminal writes text that users of a cluster may have written: names, labels, messages. A character that would
// control the terminal is written as \u and its number, as JSON does: a control character but for newline and tab, or
// one that changes the direction of text. What is no UTF-8 becomes U+FFFD.
type Terminal struct {
	to io.Writer
	// cut is the beginning of a character whose end is yet to be written.
	cut []byte
}

// Clean returns streams that write to terminals by [Terminal].
func Clean(streams genericiooptions.IOStreams) genericiooptions.IOStreams {
	streams.Out, streams.ErrOut = &Terminal{to: streams.Out}, &Terminal{to: streams.ErrOut}
	return streams
}

// Write implements io.Writer.
func (t *Terminal) Write(text []byte) (int, error) {
	whole := append(t.cut, text...)
	end := len(whole)
	for i := 1; i < utf8.UTFMax && i <= len(whole); i++ {
		if at := len(whole) - i; utf8.RuneStart(whole[at]) {
			if !utf8.FullRune(whole[at:]) {
				end = at
			}
			break
		}
	}
	t.cut = append([]byte(nil), whole[end:]...)
	if _, err := t.to.Write(harmless(whole[:end])); err != nil {
		return 0, err
	}
	return len(text), nil
}

// harmless returns text without characters that control a terminal.
func harmless(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out = utf8.AppendRune(out, utf8.RuneError)
		case r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) ||
			r == '\u2028' || r == '\u2029'):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}
