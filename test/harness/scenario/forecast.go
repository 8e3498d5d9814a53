package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Forecast is what kubectl gang said beforehand that pods of a step would come to, and what they came to.
type Forecast struct {
	// Step is the text of the step that created the pods.
	Step string
	// Said and Happened are the same where it was right: how many pods of each gang have a node, and how many pods of each
	// gang, and of none, were evicted.
	Said, Happened string
	// Why is why nothing was asked, or why it cannot be compared; empty where it can.
	Why string
	// Failed is the error of kubectl gang; Undecided: it came to no end.
	Failed    error
	Undecided bool
}

// Right reports whether what was said has happened, or could not be compared.
func (f *Forecast) Right() bool {
	return f.Why != "" || f.Failed == nil && !f.Undecided && f.Said == f.Happened
}

// restsFor is how long nothing may have changed in the cluster before kubectl gang is asked, and before it is compared.
const restsFor = time.Second

// outlook is a forecast whose outcome is still open.
type outlook struct {
	Forecast
	said *tally
	// pods are the names of those that are created, and their gangs; from is where the timeline was.
	pods map[string]string
	from int
}

// foresee asks what the pods of a step will come to, if there is a Forecaster and the step after it waits for that.
func (r *run) foresee(ctx context.Context, c *Create) {
	if r.Forecaster == "" || r.stock || len(c.Gangs)+len(c.Pods) == 0 {
		return
	}
	o := &outlook{Forecast: Forecast{Step: r.current}, pods: map[string]string{}}
	r.outlook = o
	pods, objects := r.toCreate(c)
	for _, pod := range pods {
		o.pods[nameOf(pod)] = gangOf(pod)
	}
	switch {
	case r.next == nil || r.next.Expect == nil:
		o.Why = "something else follows at once"
	case !r.scheduler.running():
		o.Why = "the scheduler is down"
	case r.gate != nil || r.proxy != nil || r.armed != nil:
		o.Why = "faults are played"
	case r.settle(ctx, restsFor, time.Now()) != nil:
		o.Why = "the cluster does not come to rest before"
	case r.ending() > 0:
		o.Why = "pods are ending"
	}
	if o.Why != "" {
		return
	}
	said, err := r.ask(ctx, objects)
	if o.Failed = err; err == nil {
		o.said, o.Undecided = said.tally(o.pods), said.Undecided
	}
	o.from = r.entries()
}

// ending counts the pods that are deleted and not gone.
func (r *run) ending() int {
	r.rec.Lock()
	defer r.rec.Unlock()
	return len(r.rec.live(func(p *podRecord) bool { return p.deleting }))
}

// toCreate returns the pods that a step creates, and all objects that are to be there with them.
func (r *run) toCreate(c *Create) (pods []*v1.Pod, objects []any) {
	group := func(name string) {
		if u := r.plan.groups[fullName(name)]; u != nil {
			objects = append(objects, u.Object)
		}
	}
	for _, name := range c.PodGroups {
		group(name)
	}
	for _, name := range c.Gangs {
		group(name)
		pods = append(pods, r.plan.members[fullName(name)]...)
	}
	pods = append(pods, r.plan.podsNamed(c.Pods)...)
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	return pods, objects
}

// answer is the answer of kubectl gang whatif.
type answer struct {
	Undecided bool
	Members   []struct{ Namespace, Pod, Node string }
	Victims   []struct{ Namespace, Pod, Gang string }
}

// ask asks kubectl gang whatif what becomes of objects.
func (r *run) ask(ctx context.Context, objects []any) (*answer, error) {
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		return nil, fmt.Errorf("encoding what is asked about: %w", err)
	}
	file := filepath.Join(r.dir, fmt.Sprintf("asked-%d.json", len(r.forecasts)))
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return nil, fmt.Errorf("writing what is asked about: %w", err)
	}
	args := []string{"whatif", "-f", file, "--preempt", "-o", "json", "--kubeconfig", r.site.cluster.Kubeconfig()}
	if r.scheduler.config != "" {
		args = append(args, "--scheduler-config", r.scheduler.config)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, r.Forecaster, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("asking kubectl gang %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	var list struct{ Items []answer }
	if err := json.Unmarshal(out.Bytes(), &list); err != nil || len(list.Items) != 1 {
		return nil, fmt.Errorf("reading what kubectl gang whatif says: %w: %s", err, out.String())
	}
	return &list.Items[0], nil
}

func (a *answer) tally(pods map[string]string) *tally {
	t := newTally(pods)
	for _, m := range a.Members {
		if m.Node != "" {
			t.placed[pods[m.Namespace+"/"+m.Pod]]++
		}
	}
	for _, v := range a.Victims {
		t.evicted[v.Gang]++
	}
	return t
}

// compare looks at what the pods of the last forecast have come to.
func (r *run) compare(ctx context.Context) {
	o := r.outlook
	if o == nil {
		return
	}
	r.outlook = nil
	if o.Why == "" && r.settle(ctx, restsFor, time.Now()) != nil {
		o.Why = "the cluster does not come to rest after it"
	}
	if o.Why == "" && o.Failed == nil {
		said, happened := o.said, r.cameTo(o)
		if r.ending() > 0 { // for the victims are not gone yet
			said.placed, happened.placed = nil, nil
		}
		o.Said, o.Happened = said.String(), happened.String()
	}
	r.forecasts = append(r.forecasts, o.Forecast)
}

// cameTo returns what happened to the pods of a forecast, and to others for them.
func (r *run) cameTo(o *outlook) *tally {
	r.rec.Lock()
	defer r.rec.Unlock()
	t := newTally(o.pods)
	for _, p := range r.rec.live(func(p *podRecord) bool { return p.bound() }) {
		if gang, asked := o.pods[p.name]; asked {
			t.placed[gang]++
		}
	}
	evicted := map[types.UID]bool{}
	for _, e := range r.rec.timeline[o.from:] {
		if e.Kind == KindEvicted && !evicted[e.UID] {
			evicted[e.UID] = true
			t.evicted[r.rec.pods[e.UID].gang]++
		}
	}
	return t
}

// tally counts pods by gang; empty for none.
type tally struct{ placed, evicted map[string]int }

func newTally(pods map[string]string) *tally {
	t := &tally{placed: map[string]int{}, evicted: map[string]int{}}
	for _, gang := range pods {
		t.placed[gang] = 0
	}
	return t
}

func (t *tally) String() string {
	counts := func(verb string, of map[string]int) (list []string) {
		for _, gang := range slices.Sorted(maps.Keys(of)) {
			name := gang
			if name == "" {
				name = "no gang"
			}
			list = append(list, fmt.Sprintf("%d of %s %s", of[gang], name, verb))
		}
		return list
	}
	return strings.Join(append(counts("placed", t.placed), counts("evicted", t.evicted)...), ", ")
}
