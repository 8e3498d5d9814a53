package e2e

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/lockstep-sh/lockstep/test/harness/scenario"
)

var forecasts = flag.Bool("forecasts", false, "ask kubectl gang whatif in all scenarios, before pods are created, what they will come to")

// asked are scenarios in which kubectl gang whatif is asked in any case.
var asked = []string{
	"devices-and-volumes/devices-of-victims-are-held-for-their-preemptor",
	"preemption/elastic-gangs-shrink-and-survive",
	"devices-and-volumes/a-whole-gpu-card-costs-one-pod",
	"topology/the-rack-with-the-least-harm-is-cleared",
	"preemption/a-gang-never-evicts-its-own-group",
	"topology/a-member-that-comes-back-evicts-in-its-own-rack",
	"reclaim/a-share-that-grows-lets-a-pod-reclaim",
	"topology/a-gang-waits-where-every-rack-is-too-small",
}

// beyond are scenarios in which it cannot be known beforehand what pods will come to, and why.
var beyond = map[string]string{
	"devices-and-volumes/a-nonstrict-gang-holds-devices":                  "only the scheduler at work knows which members it holds",
	"topology/a-nonstrict-gang-leaves-its-rack-for-one-that-fits":         "only the scheduler at work knows which members it holds",
	"waiting/a-schedule-timeout-ends-only-a-round":                        "an annotation of a waiting pod tells when a round ends",
	"integrations/pods-start-alone-where-native-podgroups-are-not-served": "the API server drops fields that it does not serve",
	"preemption/a-gang-is-left-alone-for-its-minimum-runtime":             "only the scheduler that evicted remembers when a gang lost pods",
	"preemption/a-member-that-may-not-be-deleted-spares-its-gang":         "only the API server knows whether a pod may be deleted",
	"waiting/a-gang-is-passed-only-so-often":                              "only the scheduler at work remembers how often others have passed",
	"queues/a-pod-waits-until-its-queue-has-made-way":                     "others wait for what the victims leave",
	"reservations/an-expired-reservation-gives-back-what-it-holds":        "a Reservation ends meanwhile",
	"waiting/a-gang-gives-up-after-its-wait-time":                         "a gang gives up meanwhile",
	"restarts-and-failures/the-scheduler-is-killed-between-evictions":     "the scheduler is killed while it evicts",
}

// TestForecasts compares what kubectl gang whatif says before pods are created with what they come to.
func TestForecasts(t *testing.T) {
	files := make([]string, 0, len(asked))
	for _, name := range asked {
		files = append(files, filepath.Join("scenarios", name+".yaml"))
	}
	if *forecasts {
		files = scenarioFiles(t)
	}
	asking := *runner
	asking.Forecaster = filepath.Join(filepath.Dir(runner.Scheduler), "kubectl-gang")
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		name := testName(file)
		t.Run(name, func(t *testing.T) {
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
				case beyond[name] != "":
					t.Logf("beyond what can be known, %s: %s\nsaid:     %s\nhappened: %s", beyond[name], f.Step, f.Said, f.Happened)
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
