package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// width is where lines are broken.
const width = 100

// codeIndent stands before commands and what they print.
const codeIndent = "    "

// printer writes the story, and is its narrator. It colours nothing unless it writes to a terminal.
type printer struct {
	// begin is when the control plane began to start.
	begin                   time.Time
	out                     io.Writer
	bold, dim, red, regular string
}

func newPrinter(out *os.File) *printer {
	p := &printer{out: out}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb" {
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

// Up writes where to look.
func (p *printer) Up(c *localcluster.Cluster) {
	version := "(of an unknown version)"
	if info, err := c.Clientset().Discovery().ServerVersion(); err == nil {
		version = info.GitVersion
	}
	p.Say(fmt.Sprintf("Kubernetes %s and lockstep-scheduler are up after %.1f s. To look for yourself, in another terminal, here:",
		version, time.Since(p.begin).Seconds()))
	p.code("export KUBECONFIG="+fromHere(c.Kubeconfig()), "export PATH=$PWD/"+binDir+":$PATH   # kubectl")
}

// Title begins a part of the story.
func (p *printer) Title(text string) {
	p.line("", "")
	p.line(p.bold, text)
}

// Say writes prose.
func (p *printer) Say(text string) {
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

// Command writes a command as one types it.
func (p *printer) Command(line string) {
	p.code(strings.Split("$ "+line, "\n")...)
}

// Output writes what a command printed. Lines that are too long are broken, and nothing else is changed; of what is
// only begun, one line is left.
func (p *printer) Output(text string, begin bool) {
	const more = " ..."
	if lines := wrap(text, codeIndent+more); begin && len(lines) > 1 {
		text = strings.TrimPrefix(lines[0], codeIndent+more) + more
	}
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

// ending writes what to do next.
func (p *printer) ending() {
	p.Title(fmt.Sprintf("That was all, in %.0f s. The cluster stays up. To try:", time.Since(p.begin).Seconds()))
	p.code(
		"kubectl get queues -w",
		`kubectl patch queue team-a --type=merge -p '{"spec":{"weight":3}}'`,
		"                                                # a deserves 96 GPUs now, and takes 32 back",
		"kubectl delete job,podgroup --all -n team-a     # then b has the whole cluster",
	)
	p.Say("Or take it down: make down NAME=" + clusterName)
}
