// Package registry owns the gangs of a process: one state machine for each profile, fed from
// one set of watches and one clock, and what the ledger holds for their plans. It is where
// other packages look up what a gang is, whether it runs and what it needs.
//
// The rules are in pkg/rules/gangstate. The Gang plugin of each profile gets the effects,
// and carries them out in the scheduling framework.
package registry

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// Registry has the gangs of a process. It is safe for concurrent use.
type Registry struct {
	clock clock.WithTicker
	holds *ledger.Shared
	// watches gets what is watched.
	watches *watches.Watches
	// victims returns how many victims of a holder have not ended; nil where nothing is evicted.
	victims func(holder hold.Holder) int
	// room has the groups that wait for their turn.
	room WaitingRoom
	// leaveNative: the scheduler runs native pod groups itself.
	leaveNative bool
	natives     natives
	// moved are called when the PodGroup of a gang names another queue than before.
	moved []func(profile string, key gangspec.Key)

	// profiles are those registered, by name. The map is replaced, never changed: the watches of
	// other packages start while profiles are still being registered, and read it.
	profiles atomic.Pointer[map[string]*Profile]

	// mu guards the state machines of all profiles. It is never held across a call into the
	// framework, the queue or the API server: the queue calls PreEnqueue with its own lock held.
	mu sync.Mutex
	// synced report whether the watches have delivered what existed at the start.
	synced []cache.InformerSynced
	// opened is closed when members are admitted.
	opened chan struct{}
	// podsByGang are the pods that kube-scheduler knows, with gangIndex; nil before Start.
	podsByGang cache.Indexer
}

// WaitingRoom has the groups that wait for their turn.
type WaitingRoom interface {
	// ApplyGangEffects is called with the effects of each input to the gangs of a profile, with no lock held.
	ApplyGangEffects(profile string, e *gangstate.Effects)
	// RecordChange is called when something has happened that may help jobs that did not fit.
	RecordChange(change turns.Change)
	// Recall has the gang of a pod tried again, although nothing has changed in the cluster.
	Recall(pod *v1.Pod)
	// SingleMayEnter reports whether a pod that is placed alone may enter the scheduling queue: one that did not fit waits
	// for its turn.
	SingleMayEnter(pod *v1.Pod) bool
	// RecordSingleFailure is called with what the cycle of such a pod has found that is about to fail.
	RecordSingleFailure(pod *v1.Pod, found turns.AttemptFailure)
	// ForgetSingle is called when a pod has a node, is gone, or has joined a gang, and RenewSingle when it has changed.
	ForgetSingle(pod *v1.Pod)
	RenewSingle(pod *v1.Pod)
}

// New returns a registry without profiles. victims returns how many victims of a holder in the ledger
// have not ended, and is called under the lock of the gangs; nil where nothing is evicted. watched
// gets what is watched.
func New(holds *ledger.Shared, victims func(holder hold.Holder) int, watched *watches.Watches) *Registry {
	r := &Registry{
		clock: clock.RealClock{}, holds: holds, watches: watched, victims: victims,
		leaveNative: utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload),
		natives:     newNatives(),
		opened:      make(chan struct{}),
	}
	r.profiles.Store(&map[string]*Profile{})
	return r
}

// all returns the profiles by name, not to be changed.
func (r *Registry) all() map[string]*Profile { return *r.profiles.Load() }

// Adapter carries out in a profile what follows from the state of its gangs. It is called with no
// lock held.
type Adapter interface {
	// Act carries out effects; the ledger has them already.
	Act(ctx context.Context, e gangstate.Effects)
	// Gone is called when a pod, or a PodGroup, of this UID is gone.
	Gone(uid types.UID)
	// Explanation returns why a gang waits, with everything considered; false where there is no such gang.
	Explanation(key gangspec.Key) (gangstate.Explanation, bool)
}

// Profile has the gangs of one profile. It is safe for concurrent use.
type Profile struct {
	*Registry
	name    string
	handle  fwk.Handle
	gangs   *gangstate.Gangs
	adapter Adapter
	// defaults are those of its gangs.
	defaults gangspec.Defaults
}

// Register adds the gangs of a profile, before Start; defaults are the settings of those that set nothing else. It is
// called for one profile at a time.
func (r *Registry) Register(handle fwk.Handle, defaults gangspec.Defaults, backoff gangstate.Backoff,
	adapter Adapter) *Profile {
	registerMetrics()
	p := &Profile{Registry: r, name: handle.ProfileName(), handle: handle, adapter: adapter, defaults: defaults,
		gangs: gangstate.New(defaults, backoff)}
	profiles := maps.Clone(r.all())
	profiles[p.name] = p
	r.profiles.Store(&profiles)
	return p
}

// Start starts the watches, once all profiles are registered. Members are admitted when everything
// that the API server has was seen. It fails where a watch cannot be made.
func (r *Registry) Start(ctx context.Context) error {
	for _, p := range r.all() { // they have the same clients and informers
		if err := r.watch(ctx, p.handle); err != nil {
			return err
		}
		go r.start(ctx)
		break
	}
	return nil
}

// SetRoom sets where groups wait for their turn. SetRoom has to be called before Start.
func (r *Registry) SetRoom(room WaitingRoom) { r.room = room }

// OnMove registers a function that is called, with no lock held, when a PodGroup names another queue or another
// eviction than before, or when its pods begin or cease to be a gang. OnMove has to be called before Start.
func (r *Registry) OnMove(moved func(profile string, key gangspec.Key)) {
	r.moved = append(r.moved, moved)
}

// InNoGang reports whether a pod is in no gang that is scheduled here.
func (r *Registry) InNoGang(pod *v1.Pod) bool {
	return gangspec.IsScheduledAlone(pod, r.natives.get, r.leaveNative)
}

// IsEvictedAlone reports whether a pod is evicted alone: it is in no gang, whichever scheduler placed it.
func (r *Registry) IsEvictedAlone(pod *v1.Pod) bool {
	key, source, ok := gangspec.KeyOf(pod)
	return !ok || source == gangspec.FromSchedulingGroup && r.natives.get(key).EvictedOneByOne()
}

// Serves reports whether a profile has gangs.
func (r *Registry) Serves(profile string) bool { return r.all()[profile] != nil }

// Enters reports whether a pod that is placed alone may enter the scheduling queue.
func (p *Profile) Enters(pod *v1.Pod) bool {
	return p.room.SingleMayEnter(pod)
}

// RecordSingleFailure notes what the cycle of a pod that is placed alone has found that is about to fail.
func (p *Profile) RecordSingleFailure(pod *v1.Pod, found turns.AttemptFailure) {
	p.room.RecordSingleFailure(pod, found)
}

// Holder returns the name of a group of this profile in the ledger, which all profiles share.
func (p *Profile) Holder(group string) hold.Holder {
	return hold.Holder{Profile: p.name, Group: group}
}

// look calls do with the gangs of a profile, if they are known here.
func (r *Registry) look(profile string, do func(s *gangstate.Gangs)) (known bool) {
	p := r.all()[profile]
	if p != nil {
		p.WithGangs(do)
	}
	return p != nil
}

// input passes an input to the gangs of a profile, if they are known here.
func (r *Registry) input(ctx context.Context, profile string,
	f func(s *gangstate.Gangs, now time.Time) gangstate.Effects) {
	if p := r.all()[profile]; p != nil {
		p.UpdateGangs(ctx, f)
	}
}

// Running returns what runs of a gang of a profile, and of the gangs that start together with it,
// by key; none where the gang is not known.
func (r *Registry) Running(profile string, key gangspec.Key) (running []gangstate.RunningGang) {
	r.look(profile, func(s *gangstate.Gangs) { running = s.RunningGangs(key) })
	return running
}

// Waiting returns the attempts for the gangs of a profile that have all their members and no place, in order of
// rank.
func (r *Registry) Waiting(profile string) (list []*gangstate.Attempt) {
	r.look(profile, func(s *gangstate.Gangs) { list = s.Waiting() })
	return list
}

// Wants returns what must be placed if a pod is scheduled: for a pod in no gang, the pod. It
// returns false where its place is decided.
func (r *Registry) Wants(pod *v1.Pod) (want gangstate.PlacementRequest, undecided bool) {
	if !r.look(pod.Spec.SchedulerName, func(s *gangstate.Gangs) { want, undecided = s.Wants(pod) }) {
		return gangstate.PlacementRequest{Pods: []*v1.Pod{pod}}, true
	}
	return want, undecided
}

// Progress returns how far the gang of a pod has come; false where the pod is no member of one that is known.
func (r *Registry) Progress(pod *v1.Pod) (at gangstate.Progress, member bool) {
	r.look(pod.Spec.SchedulerName, func(s *gangstate.Gangs) { at, member = s.Progress(pod.UID) })
	return at, member
}

// IsPlacedAlone reports whether a profile that has gangs places a pod alone: it is in no gang, or its gang runs.
func (r *Registry) IsPlacedAlone(pod *v1.Pod) (alone bool) {
	r.look(pod.Spec.SchedulerName, func(s *gangstate.Gangs) { alone = s.IsPlacedAlone(pod) })
	return alone
}

// PlacedWith returns the group with which a pod is placed; false if there is none.
func (r *Registry) PlacedWith(pod *v1.Pod) (group hold.Holder, together bool) {
	group.Profile = pod.Spec.SchedulerName
	r.look(group.Profile, func(s *gangstate.Gangs) { group.Group, together = s.PlacedWith(pod) })
	return group, together
}

// RankAlone returns the rank of a pod that is placed alone in a profile that has gangs.
func (r *Registry) RankAlone(pod *v1.Pod) (rank turns.Rank) {
	r.look(pod.Spec.SchedulerName, func(s *gangstate.Gangs) { rank = s.RankAlone(pod) })
	return rank
}

// PodGroups returns what the PodGroups say that have the name of a gang of a profile, also a native one that makes no
// gang.
func (r *Registry) PodGroups(profile string, key gangspec.Key) (said gangspec.PodGroups) {
	r.look(profile, func(s *gangstate.Gangs) { said = s.PodGroups(key) })
	said[gangspec.Native] = r.natives.get(key)
	return said
}

// PodGroupsOf returns what the PodGroups of a gang say, also of one that no profile has.
func (r *Registry) PodGroupsOf(key gangspec.Key) gangspec.PodGroups {
	for profile := range r.all() { // each is told of all
		return r.PodGroups(profile, key)
	}
	return gangspec.PodGroups{}
}

// Placing reports whether a holder is a group that waits for nothing but room.
func (r *Registry) Placing(holder hold.Holder) (placing bool) {
	r.look(holder.Profile, func(s *gangstate.Gangs) { placing = s.Placing(holder.Group) })
	return placing
}

// PartialHolders returns the ranks of the groups, of all profiles, that hold capacity without being complete.
func (r *Registry) PartialHolders() map[hold.Holder]turns.Rank {
	ranks := map[hold.Holder]turns.Rank{}
	for _, p := range r.all() {
		p.WithGangs(func(s *gangstate.Gangs) {
			for _, rank := range s.PartialHolders() {
				ranks[p.Holder(rank.Name)] = rank
			}
		})
	}
	return ranks
}

// Yield makes holders, of any profile, give back what they hold without being complete.
func (r *Registry) Yield(ctx context.Context, holders []hold.Holder) {
	groups := map[string][]string{}
	for _, holder := range holders {
		groups[holder.Profile] = append(groups[holder.Profile], holder.Group)
	}
	for profile, names := range groups {
		r.input(ctx, profile, func(s *gangstate.Gangs, _ time.Time) gangstate.Effects { return s.Yield(names) })
	}
}

// Changed is called when something has changed that may help gangs which did not fit.
func (r *Registry) Changed() {
	r.room.RecordChange(turns.Freed)
}

// Recall has the gang of a pod tried again, although nothing has changed in the cluster.
func (r *Registry) Recall(pod *v1.Pod) { r.room.Recall(pod) }

// Turn returns a group that waits for its turn, or has it; false if it does neither.
func (r *Registry) Turn(group hold.Holder) (turn gangstate.Turn, ok bool) {
	r.look(group.Profile, func(s *gangstate.Gangs) { turn, ok = s.Turn(group.Group) })
	return turn, ok
}

// Lead gives a group its turn, and activates its leader, which it returns; nil if the group does not wait.
func (r *Registry) Lead(ctx context.Context, group hold.Holder) (leader *v1.Pod) {
	r.input(ctx, group.Profile, func(s *gangstate.Gangs, now time.Time) (e gangstate.Effects) {
		leader, e = s.Lead(group.Group, now)
		return e
	})
	return leader
}

// GiveBack takes the turn from a group that has not used it: the group waits for another.
func (r *Registry) GiveBack(ctx context.Context, group hold.Holder) {
	r.input(ctx, group.Profile, func(s *gangstate.Gangs, now time.Time) gangstate.Effects {
		return s.GiveBack(group.Group, now)
	})
}

// Explain reports to the users of gangs of a profile why they wait, if that has changed.
func (r *Registry) Explain(ctx context.Context, profile string, keys []gangspec.Key) {
	if p := r.all()[profile]; p != nil {
		p.adapter.Act(ctx, gangstate.Effects{Changed: sets.New(keys...)})
	}
}

// GangOf returns the gang that a pod is in, under any scheduler, or false if it is in none. The pod need not exist.
func (r *Registry) GangOf(pod *v1.Pod) (gangspec.Key, bool) {
	key, _, member := gangspec.GangOf(pod, r.natives.get)
	return key, member
}

// Why returns why the members of the gang of a pod wait, with everything considered; false where the pod is in no gang
// that is known.
func (r *Registry) Why(pod *v1.Pod) (e gangstate.Explanation, ok bool) {
	key, _, member := gangspec.KeyOf(pod)
	p := r.all()[pod.Spec.SchedulerName]
	if p == nil || !member {
		return e, false
	}
	return p.adapter.Explanation(key)
}

// Synced reports whether all gangs are known that existed at the start, and their members have come to
// the gates after that of the Gang plugin.
func (r *Registry) Synced() bool {
	select {
	case <-r.opened:
		return true
	default:
		return len(r.all()) == 0
	}
}

// Explains returns why the gang of a pod waits, where that is what its users are told once kube-scheduler has reported
// the pod as unschedulable. False where kube-scheduler's own words are. What a member's own cycle has found, that it
// follows a plan or gives way to another member, explains nothing where its gang starts together.
func (r *Registry) Explains(pod *v1.Pod) (e gangstate.Explanation, explains bool) {
	p := r.all()[pod.Spec.SchedulerName]
	if p == nil || r.InNoGang(pod) {
		return e, false
	}
	at, member := r.Progress(pod)
	key, _, _ := gangspec.KeyOf(pod)
	e, known := p.adapter.Explanation(key)
	return e, member && !at.Alone || known && !e.Running && e.Reason != "" && e.Reason != v1alpha1.ReasonAwaitingPlacement
}

// Explanation returns why a gang waits, as far as its state shows, and how many of its pods name
// other schedulers; false where there is no such gang.
func (p *Profile) Explanation(key gangspec.Key) (e gangstate.Explanation, ok bool) {
	p.WithGangs(func(s *gangstate.Gangs) { e, ok = s.Explain(key) })
	if e.Reason == v1alpha1.ReasonGangIncomplete {
		e.Message += p.textOtherSchedulers(key, p.name)
	}
	return e, ok
}
