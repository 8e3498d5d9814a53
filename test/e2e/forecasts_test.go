package e2e

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/lockstep-sh/lockstep/test/scenario"
)

var forecasts = flag.Bool("forecasts", false, "ask kubectl gang whatif in all scenarios, before pods are created, what they will come to")

// asked are scenarios in which kubectl gang whatif is asked in any case.
var asked = []string{
	"C9-devices-of-those-evicted", "P2-elastic-shrink", "P10-gpu-card", "P19-killed-between-evictions", "P22-domain-with-least-harm", "P23-not-its-own-group", "P24-member-comes-back",
	"Q13-shares-that-change", "T1-required-rack-too-small",
}

// beyond are scenarios in which it cannot be known beforehand what pods will come to, and why.
var beyond = map[string]string{
	"C6-devices-are-held":    "only the scheduler at work knows which members it holds",
	"G25-begins-afresh":      "only the scheduler at work knows which members it holds",
	"G31-time-of-a-round":    "an annotation of a waiting pod tells when a round ends",
	"G49-native-not-served":  "the API server drops fields that it does not serve",
	"P31-left-alone":         "only the scheduler that evicted remembers when a gang lost pods",
	"Q7-passed-often-enough": "only the scheduler at work remembers how often others have passed",
	"Q20-way-is-made-first":  "others wait for what the victims leave",
	"R2-expired":             "a Reservation ends meanwhile",
	"S8-wait-time":           "a gang gives up meanwhile",
}

// TestForecasts compares what kubectl gang whatif says before pods are created with what they come to.
func TestForecasts(t *testing.T) {
	files := make([]string, 0, len(asked))
	for _, name := range asked {
		files = append(files, filepath.Join("scenarios", name+".yaml"))
	}
	if *forecasts {
		var err error
		if files, err = filepath.Glob(filepath.Join("scenarios", "*.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	asking := *runner
	asking.Forecaster = filepath.Join(filepath.Dir(runner.Scheduler), "kubectl-gang")
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			report := asking.Run(t.Context(), s)
			compared := 0
			for _, f := range report.Forecasts {
				switch {
				case f.Failed != nil:
					t.Errorf("failed: %s\n%v", f.Step, f.Failed)
				case f.Undecided:
					t.Errorf("undecided: %s\n%s", f.Step, f.Said)
				case f.Why != "":
					t.Logf("not compared: %s\n%s", f.Step, f.Why)
				case f.Right():
					compared++
					t.Logf("right: %s\n%s", f.Step, f.Said)
				case beyond[s.Name] != "":
					t.Logf("beyond what can be known, %s: %s\nsaid:     %s\nhappened: %s", beyond[s.Name], f.Step, f.Said, f.Happened)
				default:
					t.Errorf("wrong: %s\nsaid:     %s\nhappened: %s", f.Step, f.Said, f.Happened)
				}
			}
			if compared == 0 && !*forecasts {
				t.Errorf("nothing was compared: %s", report)
			}
		})
	}
}
