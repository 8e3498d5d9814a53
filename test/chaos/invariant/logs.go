package invariant

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// wrong matches what a process writes when something went wrong inside it.
var wrong = regexp.MustCompile(`^panic: |^fatal error: |WARNING: DATA RACE|Observed a panic|runtime error: `)

// Findings returns the lines of a log that report a panic or a data race, each with what follows it.
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

// withdrawal matches what the scheduler logs when it has decided which pods to evict and then evicts none.
var withdrawal = regexp.MustCompile(`^I(\d{4} \d\d:\d\d:\d\d\.\d+) .*"Preemption aborted.* preemptor="([^"]*)" why="([^"]*)"`)

// A decision that is withdrawn for the same reason more often than withdrawals in withdrawnIn, in calm, is taken
// without regard to that reason. Before withdrawnFor the scheduler may not have seen yet what changed.
const (
	withdrawals  = 5
	withdrawnIn  = 10 * time.Second
	withdrawnFor = 2 * time.Second
)

// CheckWithdrawals looks in the log of a scheduler for decisions to evict that are withdrawn over and over: no pod is
// evicted, so that nothing of it can be seen but marks that come and go.
func (c *Checker) CheckWithdrawals(log string) {
	type reason struct{ preemptor, why string }
	all := map[reason][]time.Time{}
	for line := range strings.Lines(log) {
		found := withdrawal.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		at, err := time.ParseInLocation("2006 0102 15:04:05", fmt.Sprint(c.now.Year(), " ", found[1]), c.now.Location())
		if err != nil {
			continue
		}
		r := reason{found[2], found[3]}
		times := append(all[r], at)
		for at.Sub(times[0]) > withdrawnIn || c.troubledIn(times[0], at) && len(times) > 1 {
			times = times[1:]
		}
		all[r] = times
		if len(times) > withdrawals && at.Sub(times[0]) >= withdrawnFor && !c.troubledIn(times[0], at) {
			c.violate(Withdrawn, r.preemptor, "", nil, "from %s to %s it was decided %d times to evict for it, and each time withdrawn: %s",
				times[0].Format(stamp), at.Format(stamp), len(times), r.why)
		}
	}
}
