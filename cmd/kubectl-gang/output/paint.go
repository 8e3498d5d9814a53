package output

import "regexp"

// Colours of a terminal.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	plain  = "\x1b[0m"
)

// paints are the words that have a colour: phases and reasons.
var paints = []struct {
	words  *regexp.Regexp
	colour string
}{
	{regexp.MustCompile(`\b(Failed|JobFailed|TimedOut|MemberRejected|GangUnsupported)\b`), red},
	{regexp.MustCompile(`\b(Pending|Unknown|Unschedulable|GangIncomplete|GangUndefined|AwaitingApproval)\b`), yellow},
	{regexp.MustCompile(`\b(Running|Available|Succeeded|Finished|MinimumBound)\b`), green},
}

// paint colours words of lines that are laid out already: columns stay where they are.
func paint(text []byte) []byte {
	for _, p := range paints {
		text = p.words.ReplaceAll(text, []byte(p.colour+"$0"+plain))
	}
	return text
}
