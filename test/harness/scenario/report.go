package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// These bound a report; the file has all of it.
const (
	reportEntries  = 80
	reportWidth    = 200 // of a line, in bytes
	reportFailures = 40
)

// Report is what came of a scenario.
type Report struct {
	Scenario string
	// Step is the text of the step that failed; Failures are what was expected there, and found.
	Step     string
	Failures []string
	Timeline Timeline
	Took     time.Duration
	// Dir has the logs, the timeline and the configuration.
	Dir string
	// Forecasts are what kubectl gang said of pods before they were created, where it was asked.
	Forecasts []Forecast
	// Tails are the last lines of what programs wrote: of their logs, and of the command that ran last.
	Tails []Tail
}

// Tail is the end of what something wrote.
type Tail struct{ Of, Lines string }

// Failed reports whether anything was not as expected.
func (r *Report) Failed() bool { return len(r.Failures) > 0 }

// String tells the story of a scenario that failed. What was not as expected stands at both ends: the
// output may be cut at either.
func (r *Report) String() string {
	if !r.Failed() {
		return fmt.Sprintf("scenario %s holds, after %s", r.Scenario, r.Took.Round(time.Millisecond))
	}
	verdict := r.verdict()
	var out strings.Builder
	out.WriteString(verdict)
	fmt.Fprintf(&out, "\nWhat happened (seconds since the step):\n%s", narrow(r.Timeline.tail(reportEntries)))
	fmt.Fprintf(&out, "\nLogs: %s\n", r.Dir)
	for _, tail := range r.Tails {
		fmt.Fprintf(&out, "The end of %s:\n%s\n", tail.Of, narrow(tail.Lines))
	}
	fmt.Fprintf(&out, "\nAgain: %s", verdict)
	return out.String()
}

// verdict returns what was not as expected, and in which step.
func (r *Report) verdict() string {
	var out strings.Builder
	fmt.Fprintf(&out, "scenario %s does not hold, after %s\n", r.Scenario, r.Took.Round(time.Millisecond))
	if r.Step != "" {
		fmt.Fprintf(&out, "in %s\n", r.Step)
	}
	for _, f := range r.Failures[:min(len(r.Failures), reportFailures)] {
		fmt.Fprintf(&out, "  * %s\n", strings.ReplaceAll(f, "\n", "\n    "))
	}
	return out.String()
}

// narrow cuts long lines.
func narrow(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if len(line) > reportWidth {
			line = strings.ToValidUTF8(line[:reportWidth], "") + "...\n"
		}
		out.WriteString(line)
	}
	return out.String()
}

// save writes the whole timeline next to the logs.
func (r *Report) save() error {
	text := r.Timeline.String()
	if r.Failed() {
		text += "\n" + strings.Join(r.Failures, "\n") + "\n"
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "timeline.txt"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("saving the timeline: %w", err)
	}
	return nil
}
