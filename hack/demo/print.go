package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// width is where lines are broken.
const width = 100

// codeIndent stands before commands and what they print.
const codeIndent = "    "

// printer writes the story. It colours nothing unless it writes to a terminal.
type printer struct {
	out                     io.Writer
	bold, dim, red, regular string
}

func newPrinter(out *os.File) *printer {
	p := &printer{out: out}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		p.bold, p.dim, p.red, p.regular = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"
	}
	return p
}

func (p *printer) line(style, text string) {
	if style != "" {
		text = style + text + p.regular
	}
	fmt.Fprintln(p.out, text)
}

// title begins a part of the story.
func (p *printer) title(text string) {
	p.line("", "")
	p.line(p.bold, text)
}

// say writes prose.
func (p *printer) say(text string) {
	p.line("", "")
	for _, line := range wrap(strings.Join(strings.Fields(text), " "), "  ") {
		p.line("", line)
	}
}

// code writes what one may type.
func (p *printer) code(lines ...string) {
	p.line("", "")
	for _, line := range lines {
		p.line(p.bold, codeIndent+line)
	}
}

// output writes what a command printed. Lines that are too long are broken, and nothing else is changed.
func (p *printer) output(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		lines := []string{codeIndent + line}
		if len(lines[0]) > width {
			lines = wrap(line, codeIndent)
		}
		for _, part := range lines {
			p.line(p.dim, part)
		}
	}
}

// failure ends the story early.
func (p *printer) failure(err error) {
	p.line("", "")
	for i, line := range strings.Split("FAILED: "+err.Error(), "\n") {
		style := ""
		if i == 0 {
			style = p.red
		}
		p.line(style, line)
	}
}

// wrap breaks text between words.
func wrap(text, indent string) []string {
	var lines []string
	line := indent
	for _, word := range strings.Fields(text) {
		if line != indent {
			if len(line)+1+len(word) > width {
				lines = append(lines, line)
				line = indent
			} else {
				line += " "
			}
		}
		line += word
	}
	return append(lines, line)
}

// span words a time, rounded up: in milliseconds below one second.
func span(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", max(0, d-1)/time.Millisecond+1)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
