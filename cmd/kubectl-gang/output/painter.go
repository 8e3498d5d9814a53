package output

import (
	"bytes"
	"io"
	"regexp"
)

// Colours of a terminal.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	plain  = "\x1b[0m"
)

// paints are the words that have a colour, where they stand by themselves.
var paints = []struct {
	words  *regexp.Regexp
	colour string
}{
	{regexp.MustCompile(`\b(Failed|TimedOut|MemberRejected|GangUnsupported)\b`), red},
	{regexp.MustCompile(`\b(Pending|Unknown|Unschedulable|GangIncomplete|GangUndefined|AwaitingApproval)\b`), yellow},
	{regexp.MustCompile(`\b(Running|Available|Succeeded|Finished|MinimumBound)\b`), green},
}

// painter colours words of lines that are laid out already: columns stay where they are.
type painter struct{ to io.Writer }

// Write implements io.Writer. Printers of tables write whole lines.
func (p *painter) Write(text []byte) (int, error) {
	painted := bytes.Clone(text)
	for _, paint := range paints {
		painted = paint.words.ReplaceAll(painted, []byte(paint.colour+"$0"+plain))
	}
	if _, err := p.to.Write(painted); err != nil {
		return 0, err
	}
	return len(text), nil
}
