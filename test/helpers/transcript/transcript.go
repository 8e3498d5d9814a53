// Package transcript finds the commands that a text shows, and what it shows that they print.
package transcript

import "strings"

// Command is a command line in a code block, and the lines below it.
type Command struct {
	Line, Output string
}

// Of returns the commands of a Markdown text that stand behind "$ " in code blocks.
func Of(markdown string) (commands []Command) {
	inBlock, inCommand := false, false
	for line := range strings.Lines(markdown) {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock, inCommand = !inBlock, false
		case inBlock && isCommand:
			commands, inCommand = append(commands, Command{Line: strings.TrimSpace(command)}), true
		case inCommand:
			commands[len(commands)-1].Output += line
		}
	}
	return commands
}
