// Package simulate makes a scheduler decide about pods in a cluster that nothing happens to.
package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	schedulerapp "github.com/lockstep-sh/lockstep/cmd/scheduler/app"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/schedulersetup"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

// Object is one that is supposed to be there.
type Object struct {
	Resource schema.GroupVersionResource
	Object   map[string]any
}

// Resources of objects that are read here.
var (
	Pods  = v1.SchemeGroupVersion.WithResource("pods")
	Nodes = v1.SchemeGroupVersion.WithResource("nodes")
	// Claims are ResourceClaims.
	Claims = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
)

// Simulation is a scheduler at work on what is only supposed.
type Simulation struct {
	*Environment
	server    *overlayserver.Server
	scheduler *schedulerapp.Simulated
	dir       string
	// kubeconfig is the path of the kubeconfig of the server, and configFile that of the scheduler's configuration; empty
	// for the built-in one.
	kubeconfig, configFile string
	ended                  chan error
	// told is how many of the pods that were evicted earlier answers have listed.
	told int
	stop context.CancelFunc
}

// New returns a simulation on a cluster, in which no scheduler is at work yet.
func New(ground *Environment) (_ *Simulation, err error) {
	s := &Simulation{Environment: ground, ended: make(chan error, 1), stop: func() {}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.server, err = overlayserver.Start(ground.Base); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "kubectl-gang"); err != nil {
		return nil, fmt.Errorf("making a directory for a kubeconfig: %w", err)
	}
	if s.kubeconfig, err = s.server.Kubeconfig(s.dir); err != nil {
		return nil, err
	}
	s.configFile, err = writeConfig(s.dir, ground.SchedulerConfig)
	return s, err
}

// Begin adds objects to the cluster, and starts a scheduler. Pods are added once it has decided about the Reservations
// that come with them: a controller makes pods later than that.
func (s *Simulation) Begin(ctx context.Context, objects []Object) error {
	var first, pods []Object
	reservations := sets.New[string]()
	for _, one := range objects {
		switch one.Resource {
		case Pods:
			pods = append(pods, one)
			continue
		case v1alpha1.ReservationResource:
			name, _, _ := unstructured.NestedString(one.Object, "metadata", "name")
			reservations.Insert(name)
		}
		first = append(first, one)
	}
	if len(reservations) == 0 {
		first, pods = objects, nil
	}
	if err := s.Suppose(first); err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil || len(pods) == 0 {
		return err
	}
	if err := s.reserved(ctx, reservations); err != nil {
		return err
	}
	return s.Suppose(pods)
}

// reserved returns when the scheduler has found a place for Reservations, or none, or has come to nothing for a while.
func (s *Simulation) reserved(ctx context.Context, names sets.Set[string]) error {
	if err := s.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, decidesWithin)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(context.Context) (bool, error) {
		decided := 0
		for _, o := range s.server.Made(v1alpha1.ReservationResource) {
			rsv := &v1alpha1.Reservation{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, rsv); err != nil {
				return false, fmt.Errorf("reading a Reservation: %w", err)
			}
			if names.Has(rsv.Name) && (rsv.Status.Phase != "" ||
				meta.FindStatusCondition(rsv.Status.Conditions, v1alpha1.ReservationScheduled) != nil) {
				decided++
			}
		}
		return decided == len(names), s.server.Refused()
	})
	if wait.Interrupted(err) {
		return nil
	}
	return err
}

// Start starts a scheduler. It is called once.
func (s *Simulation) Start(ctx context.Context) (err error) {
	ctx, s.stop = context.WithCancel(ctx)
	if s.scheduler, err = schedulerapp.NewSimulated(ctx, s.configFile, s.kubeconfig); err != nil {
		return err
	}
	go func() { s.ended <- s.scheduler.Run(ctx) }()
	return nil
}

// Ready returns when the scheduler knows all that is in the cluster.
func (s *Simulation) Ready(ctx context.Context) error { return s.await(ctx, s.scheduler.Set.Ready) }

// await returns when the scheduler has read something.
func (s *Simulation) await(ctx context.Context, read func() bool) error {
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(context.Context) (bool, error) {
		return read(), s.server.Refused()
	})
	if err != nil {
		return fmt.Errorf("waiting for the scheduler to read the cluster: %w", err)
	}
	return nil
}

// Kinds asks the cluster which kinds it serves.
func (s *Simulation) Kinds() (meta.RESTMapper, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("asking which kinds there are: %w", err)
	}
	config.QPS, config.Burst = -1, 0
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("asking which kinds there are: %w", err)
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return nil, fmt.Errorf("asking which kinds there are: %w", err)
	}
	return restmapper.NewDiscoveryRESTMapper(groups), nil
}

// Set returns the plugins of the scheduler, which know what it has decided.
func (s *Simulation) Set() *schedulersetup.Set { return s.scheduler.Set }

// Profiles returns the names of the scheduler's profiles, which pods ask for, in order.
func (s *Simulation) Profiles() []string { return slices.Sorted(maps.Keys(s.scheduler.Profiles)) }

// Suppose adds objects to the cluster.
func (s *Simulation) Suppose(more []Object) error {
	for _, one := range more {
		if err := s.server.Add(one.Resource, one.Object); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the simulation. Nothing is left of it.
func (s *Simulation) Close() {
	s.stop()
	logs.FlushLogs()
	if s.server != nil {
		_ = s.server.Close() // it has no more than this process
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

const (
	// lookEvery is the interval of looking at what has been decided.
	lookEvery = 20 * time.Millisecond
	// settled is how long nothing may change before a decision is taken as final: what was written comes back by a watch.
	// stillWorking is the same where the scheduler reports that it may not be final, or has the pods in hand, and idle
	// where it has no pods at all in hand, so that nothing but time would change it.
	settled, stillWorking, idle = 100 * time.Millisecond, 2 * time.Second, 500 * time.Millisecond
	// decidesWithin is how long the scheduler may take to decide about Reservations, on a busy machine, too.
	decidesWithin = 10 * time.Second
)

// Decide returns what the scheduler decides about pods, at the latest when ctx is done; of victims those that no
// earlier answer has.
func (s *Simulation) Decide(ctx context.Context, pods []*v1.Pod) (*Answer, error) {
	asked := time.Now()
	answer, err := s.decide(ctx, pods)
	if err == nil {
		answer.Asked = asked
		s.told += len(answer.Victims) + len(answer.Others)
	}
	return answer, err
}

func (s *Simulation) decide(ctx context.Context, pods []*v1.Pod) (*Answer, error) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	l := &simulationRun{Simulation: s, pods: pods, unseen: len(pods), evictedFor: map[types.UID]*v1.ObjectReference{}}
	asked := uidsOf(pods)
	var last string
	var since time.Time
	for {
		answer, err := l.look(ctx)
		if refused := s.server.Refused(); refused != nil {
			err = refused
		}
		if err != nil {
			return nil, err
		}
		decided, quiet := answer.decided()
		decided = !l.behind() && decided
		awaits, until := s.awaits(pods)
		inHand := awaits || s.server.Behind() || s.scheduler.InHand(asked)
		isIdle := !inHand && !s.scheduler.InHand(nil)
		switch {
		case inHand:
			quiet = stillWorking
		case isIdle:
			quiet = min(quiet, idle)
		}
		if now := fmt.Sprint(l.changes, inHand, isIdle, answer.words()); now != last || until.After(time.Now()) ||
			s.scheduler.Busy() && s.scheduler.InHand(asked) {
			last, since = now, time.Now()
		}
		// The last victims may go when there is room already.
		placed := answer.Placed() == len(pods) && len(answer.Victims) == 0
		if decided && s.scheduler.Set.Ready() && (placed || time.Since(since) >= quiet) {
			answer.Undecided = slices.ContainsFunc(answer.Verdicts, func(v Verdict) bool { return v.Reason == queuesNotRead })
			return answer, nil
		}
		select {
		case err := <-s.ended:
			if ctx.Err() == nil {
				return nil, fmt.Errorf("simulating: the scheduler ended: %w", err)
			}
		case <-ctx.Done():
		case <-ticker.C:
			continue
		}
		answer.Undecided = true
		return answer, nil
	}
}

// awaits reports whether the reason of the gang of a pod may not be the last word, and until when at least; see
// [schedulersetup.Set.Awaits].
func (s *Simulation) awaits(pods []*v1.Pod) (awaits bool, until time.Time) {
	for _, pod := range pods {
		one, at := s.scheduler.Set.Awaits(pod)
		if awaits = awaits || one; at.After(until) {
			until = at
		}
	}
	return awaits, until
}

// GangOf returns the gang of a pod, as namespace/name; empty where it is in none that is scheduled as one.
func (s *Simulation) GangOf(pod *v1.Pod) string {
	gangs := s.scheduler.Set.Gangs()
	if !gangs.Serves(pod.Spec.SchedulerName) || gangs.InNoGang(pod) {
		return ""
	}
	key, _ := gangs.GangOf(pod)
	return key.String()
}

// Decisions returns what the scheduler has decided about a gang since a time, the oldest first.
func (s *Simulation) Decisions(gang string, since time.Time) []decisions.Decision {
	return slices.DeleteFunc(s.scheduler.Set.Decisions().Of(gang), func(d decisions.Decision) bool {
		return d.Last.Time.Before(since)
	})
}

// Left counts, by gang, the pods beside those evicted, now or for earlier answers, that have a node and have not ended,
// of their gangs.
func (s *Simulation) Left(evicted []*v1.Pod) map[string]int {
	counts, gone := map[string]int{}, uidsOf(evicted) // the listed pods may be those of a moment before
	for _, pod := range evicted {
		counts[s.GangOf(pod)] = 0
	}
	for _, pod := range s.server.DeletedPods() {
		gone.Insert(pod.GetUID())
	}
	listed, _ := s.scheduler.Listed() // a scheduler that has decided has listed them
	for _, pod := range listed {
		gang := s.GangOf(pod)
		if _, asked := counts[gang]; asked && !gone.Has(pod.UID) && pod.Spec.NodeName != "" &&
			pod.DeletionTimestamp == nil && !objectstate.HasEnded(pod) {
			counts[gang]++
		}
	}
	delete(counts, "")
	return counts
}

// Violating returns how many pods that are evicted for some pods, since a time, no PodDisruptionBudget lets go.
func (s *Simulation) Violating(pods []*v1.Pod, since time.Time) int {
	asked, violating := sets.New[string](), 0
	for _, pod := range pods {
		asked.Insert(cmp.Or(s.GangOf(pod), pod.Namespace+"/"+pod.Name))
	}
	for _, d := range s.scheduler.Set.Decisions().All() {
		if d.Result == decisions.Evict && !d.Last.Time.Before(since) && slices.ContainsFunc(d.Gangs, asked.Has) {
			violating += d.Violating
		}
	}
	return violating
}

// Beside counts, by gang, the pods of the gangs of some pods that are in the cluster beside them and have not ended.
func (s *Simulation) Beside(pods []*v1.Pod) map[string]int {
	asked, counts := uidsOf(pods), map[string]int{}
	gangs := sets.New[string]()
	for _, pod := range pods {
		gangs.Insert(s.GangOf(pod))
	}
	gangs.Delete("")
	listed, _ := s.scheduler.Listed() // a scheduler that has decided has listed them
	for _, pod := range listed {
		if gang := s.GangOf(pod); gangs.Has(gang) && !asked.Has(pod.UID) && pod.DeletionTimestamp == nil {
			counts[gang]++
		}
	}
	return counts
}
