package page

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

var epoch = time.Unix(1_900_000_000, 0)

// queue returns a queue that deserves and has so much cpu.
func queue(name, deserved, allocated string) view.Queue {
	return view.Queue{Name: name, Resources: []view.QueueResource{{
		Name: "cpu", Deserved: resource.MustParse(deserved), Allocated: resource.MustParse(allocated),
	}}}
}

func TestHistory(t *testing.T) {
	for sentence, c := range map[string]struct {
		samples [][]view.Queue
		want    string
	}{
		"numbers are in the resource's own unit": {
			[][]view.Queue{{queue("a", "1500m", "1")}, {queue("a", "2", "0")}},
			`{"times":[1900000000,1900000010],"series":[{"queue":"a","resource":"cpu","deserved":[1.5,2],"allocated":[1,0]}],"leftOut":0}`,
		},
		"a queue that comes later has no numbers before, one that went has none since": {
			[][]view.Queue{{queue("a", "1", "1")}, {queue("b", "2", "2")}},
			`{"times":[1900000000,1900000010],"series":[{"queue":"a","resource":"cpu","deserved":[1,null],"allocated":[1,null]},` +
				`{"queue":"b","resource":"cpu","deserved":[null,2],"allocated":[null,2]}],"leftOut":0}`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var h history
			for i, queues := range c.samples {
				h.add(epoch.Add(time.Duration(i)*sampleEvery), queues)
			}
			got, err := json.Marshal(h.clone())
			must.Succeed(t, err)
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHistoryIsBounded: an hour is kept, of so many queues; queues that are gone make room for
// others.
func TestHistoryIsBounded(t *testing.T) {
	var many []view.Queue
	for i := range maxSeries + 5 {
		many = append(many, queue(fmt.Sprintf("q%d", i), "1", "1"))
	}
	var h history
	h.add(epoch, many)
	if len(h.Series) != maxSeries || h.LeftOut != 5 {
		t.Errorf("%d series and %d left out, want %d and 5", len(h.Series), h.LeftOut, maxSeries)
	}
	for i := range maxSamples {
		h.add(epoch.Add(time.Duration(i+1)*sampleEvery), []view.Queue{queue("q0", "1", fmt.Sprint(i))})
	}
	if len(h.Series) != 1 || h.LeftOut != 0 {
		t.Fatalf("%d series and %d left out when all but one queue are gone for an hour, want 1 and 0", len(h.Series), h.LeftOut)
	}
	s := h.Series[0]
	if len(h.Times) != maxSamples || len(s.Deserved) != maxSamples || len(s.Allocated) != maxSamples {
		t.Errorf("%d times, %d and %d numbers, want %d of each", len(h.Times), len(s.Deserved), len(s.Allocated), maxSamples)
	}
	if h.Times[0] != epoch.Add(sampleEvery).Unix() || s.Allocated[0] != 0 || s.Allocated[maxSamples-1] != maxSamples-1 {
		t.Errorf("from %d with %v to %v: the oldest is not what was dropped", h.Times[0], s.Allocated[0], s.Allocated[maxSamples-1])
	}
}
