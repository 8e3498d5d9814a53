package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const (
	// leaseNamespace is where leases are, leaseNames their names by component.
	leaseNamespace = metav1.NamespaceSystem

	probeEvery   = 150 * time.Millisecond
	probeTimeout = time.Second
	// stall is how late the prober may be before the machine counts as having stood still.
	stall = 2 * time.Second
)

var leaseNames = map[workload.Target]string{
	workload.Scheduler: "lockstep-scheduler", workload.Controller: "lockstep-controller", workload.Descheduler: "lockstep-descheduler",
}

// health knows whether everything that schedules is well: the API server answers, and the holder of a fresh lease is a
// process that runs. The controller and the descheduler are not looked at: what they do comes late. It is safe for
// concurrent use.
type health struct {
	client   kubernetes.Interface
	seen     *observer
	watching [][]byte
	replicas map[workload.Target][]*replica

	mu sync.Mutex
	// broken is what was broken on purpose and is not mended yet, by name.
	broken map[string]bool
	down   []string
	// faultAt and fault are the last fault, or the last moment of it.
	faultAt time.Time
	fault   string
	// stricken is the leader, by its name in the lease, when the leading scheduler was hit, until another one leads.
	strickenAt time.Time
	stricken   string
	failovers  []time.Duration
	stalls     int
	// cut is how far the logs of schedulers had come, by file, when watches were last cut; nil when the leader is known to
	// watch again.
	cut map[string]int64
	// holders are all processes that have led, by their names in leases.
	holders map[string]bool
}

func newHealth(o *Options, client kubernetes.Interface, seen *observer) *health {
	return &health{client: client, seen: seen, watching: watching(o), replicas: map[workload.Target][]*replica{}, broken: map[string]bool{}, holders: map[string]bool{}}
}

// breaks notes that something is broken from now on, mends that it is not any more.
func (h *health) breaks(what, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken[what] = true
	h.fault, h.faultAt = how, time.Now()
	h.tell(append(slices.Clone(h.down), what))
}

func (h *health) mends(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.broken, what)
	h.faultAt = time.Now()
}

// touches notes a fault that breaks nothing that schedules.
func (h *health) touches(how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.faultAt = how, time.Now()
}

// cuts notes that all watches are cut, or are about to be. Clients ask again ever more rarely, the longer it lasts and
// the more often it happens within two minutes: up to a minute may pass until a scheduler sees what there is.
func (h *health) cuts() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = map[string]int64{}
	for _, r := range h.replicas[workload.Scheduler] {
		if info, err := os.Stat(r.logFile); err == nil {
			h.cut[r.logFile] = info.Size()
		}
	}
}

// watching returns what client-go logs when a watch begins, for the kinds that a scheduler cannot do without.
func watching(o *Options) (lines [][]byte) {
	kinds := []string{"*v1.Pod", "*v1.Node"}
	if o.Scheduler != stock {
		kinds = append(kinds, "*v1alpha1.PodGroup", "scheduling.lockstep.dev/v1alpha1, Resource=reservations")
		if o.Queues {
			kinds = append(kinds, "scheduling.lockstep.dev/v1alpha1, Resource=queues")
		}
	}
	for _, kind := range kinds {
		lines = append(lines, fmt.Appendf(nil, "\"Listing and watching\" type=%q", kind))
	}
	return lines
}

// sees reports whether a scheduler watches again.
func (h *health) sees(leader *replica) bool {
	h.mu.Lock()
	cut, any := h.cut[leader.logFile], h.cut != nil
	h.mu.Unlock()
	if !any {
		return true
	}
	log, err := readFrom(leader.logFile, cut)
	if err != nil || slices.ContainsFunc(h.watching, func(line []byte) bool { return !bytes.Contains(log, line) }) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = nil
	return true
}

// strikes notes that the leading scheduler was hit.
func (h *health) strikes(leader *replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stricken, h.strickenAt = leader.holds(), time.Now()
}

// lastFault returns how long ago the last fault was, and what it was.
func (h *health) lastFault() (time.Duration, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.broken) > 0 {
		return 0, h.fault
	}
	return time.Since(h.faultAt), h.fault
}

// tell hands on what is faulty. The mutex is locked.
func (h *health) tell(down []string) {
	slices.Sort(down)
	down = slices.Compact(down)
	if !slices.Equal(down, h.down) {
		h.down = down
		h.seen.observe(invariant.Health{Down: down})
	}
}

// well reports whether nothing is faulty.
func (h *health) well() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.down) == 0
}

// probe looks at everything until ctx ends.
func (h *health) probe(ctx context.Context) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		late := time.Since(last) > probeEvery+stall
		down := h.look(ctx)
		if ctx.Err() != nil {
			return
		}
		h.mu.Lock()
		if late {
			h.stalls++
			h.fault, h.faultAt = "the machine stood still", time.Now()
			down = append(down, "the machine")
		}
		h.tell(append(down, slices.Collect(maps.Keys(h.broken))...))
		h.mu.Unlock()
	}
}

// look returns what is not well.
func (h *health) look(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	asked := time.Now()
	lease, err := h.lease(ctx, workload.Scheduler)
	h.seen.observe(invariant.Answered{After: time.Since(asked)})
	if err != nil {
		h.touches(fmt.Sprintf("the API server did not answer within %s", probeTimeout))
		return []string{string(workload.APIServer)}
	}
	leader := h.leader(workload.Scheduler, lease)
	if leader == nil || !leader.works() || time.Since(lease.Spec.RenewTime.Time) > workload.LeaseDuration {
		return []string{string(workload.Scheduler)}
	}
	if !h.sees(leader) {
		return []string{"watches of the scheduler"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stricken != "" {
		if leader.holds() != h.stricken {
			h.failovers = append(h.failovers, time.Since(h.strickenAt))
		}
		h.stricken = ""
	}
	return nil
}

// lease reads a lease.
func (h *health) lease(ctx context.Context, of workload.Target) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return h.client.CoordinationV1().Leases(leaseNamespace).Get(ctx, leaseNames[of], metav1.GetOptions{})
}

// leader finds the process that holds a lease: processes do not know their names, so the one whose log says that it
// leads while a name is new has that name.
func (h *health) leader(of workload.Target, lease *coordinationv1.Lease) *replica {
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil {
		return nil
	}
	holder := *lease.Spec.HolderIdentity
	for _, r := range h.replicas[of] {
		if r.holds() == holder {
			return r
		}
	}
	h.mu.Lock()
	ended := h.holders[holder]
	h.mu.Unlock()
	if ended {
		return nil // the process that had this name has ended
	}
	for _, r := range h.replicas[of] {
		if r.claims(holder) {
			h.mu.Lock()
			h.holders[holder] = true
			h.mu.Unlock()
			h.seen.fault("%s leads", r.name)
			return r
		}
	}
	return nil
}

// waitLeader returns the process that leads.
func (h *health) waitLeader(ctx context.Context, of workload.Target) (*replica, error) {
	for {
		if lease, err := h.lease(ctx, of); err == nil {
			if r := h.leader(of, lease); r != nil && r.works() {
				return r, nil
			}
		}
		if err := await.Pause(ctx, probeEvery); err != nil {
			return nil, err
		}
	}
}

// waitWell returns when nothing is faulty.
func (h *health) waitWell(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, probeEvery, true, func(context.Context) (bool, error) { return h.well(), nil })
}
