package invariant

import (
	"regexp"
	"strings"
)

// wrong is what a process writes when something went wrong inside it.
var wrong = regexp.MustCompile(`^panic: |^fatal error: |WARNING: DATA RACE|Observed a panic|runtime error: `)

// Findings returns the lines of a log that tell of a panic or a data race, each with what follows it.
func Findings(log string) []string {
	const follows, most = 12, 5
	var found []string
	lines := strings.Split(log, "\n")
	for i := 0; i < len(lines) && len(found) < most; i++ {
		if wrong.MatchString(lines[i]) {
			end := min(i+follows, len(lines))
			found = append(found, strings.Join(lines[i:end], "\n"))
			i = end
		}
	}
	return found
}
