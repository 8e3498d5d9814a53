// Package ledger shares one ledger of held capacity between the plugins of all profiles of a process: pods of all
// profiles respect what one profile promises.
//
// It is the only lock around the ledger. It never calls out while it holds the lock.
package ledger

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// ErrReasonHeld is [hold.ErrReason].
const ErrReasonHeld = hold.ErrReason

// Demand is what a pod takes of a node.
type Demand struct {
	Request resource.Vector
	Ports   []hold.Port
	// Devices are the claims that it would be allocated; nil if not computed.
	Devices []*resourceapi.ResourceClaim
}

// DemandOf returns what a pod takes of a node.
func DemandOf(info fwk.PodInfo) Demand {
	request := info.CalculateResource().Resource
	d := Demand{Request: resource.Vector{}}
	set := func(name v1.ResourceName, amount int64) {
		if amount != 0 {
			d.Request[name] = amount
		}
	}
	set(v1.ResourceCPU, request.GetMilliCPU())
	set(v1.ResourceMemory, request.GetMemory())
	set(v1.ResourceEphemeralStorage, request.GetEphemeralStorage())
	for name, amount := range request.GetScalarResources() {
		set(name, amount)
	}
	for _, port := range util.GetHostPorts(info.GetPod()) {
		d.Ports = append(d.Ports, hold.Port{IP: port.HostIP, Protocol: string(port.Protocol), Number: port.HostPort})
	}
	return d
}

// Shared is the shared ledger. It is safe for concurrent use.
type Shared struct {
	mu     sync.RWMutex
	ledger *hold.Ledger
	// held mirrors the number of holds, so that the common case, none, costs no lock.
	held atomic.Int64
	// maxHeld mirrors a bound on what is held on any node, likewise.
	maxHeld atomic.Pointer[hold.Taken]
	// claims counts the decisions that made nominations.
	claims atomic.Uint64
	// onFreed are called with nodes on which held capacity was freed, onReport without them, onRenominate with pods whose
	// nomination has changed or ended.
	onFreed      []func(nodeName string)
	onReport     []func()
	onRenominate []func(types.UID)
	// onChange are called with the pods whose holds have changed.
	onChange []func([]types.UID)
	// others are no holds: pods of higher priority may take their places.
	others otherNominees
}

// New returns an empty ledger.
func New() *Shared { return &Shared{ledger: hold.NewLedger()} }

// change changes the ledger, and calls the registered functions.
func (h *Shared) change(f func(*hold.Ledger) hold.Change) {
	h.mu.Lock()
	c, changed := f(h.ledger), h.ledger.Changed()
	h.held.Store(int64(h.ledger.Len()))
	h.maxHeld.Store(h.ledger.MaxHeld())
	h.mu.Unlock()
	if len(changed) > 0 {
		for _, tell := range h.onChange {
			tell(changed)
		}
	}
	if len(c.Freed) > 0 {
		h.ReportFreed(c.Freed...)
	}
	for _, pod := range c.Renominated {
		for _, tell := range h.onRenominate {
			tell(pod)
		}
	}
}

// changeHeld does what change does, and nothing if nothing is held.
func (h *Shared) changeHeld(f func(*hold.Ledger) hold.Change) {
	if !h.Empty() {
		h.change(f)
	}
}

// FollowPlan records the plan of a holder for these pods: the holds of the plan replace their nominations.
func (h *Shared) FollowPlan(holder hold.Holder, pods []types.UID, plan []hold.Hold) {
	h.change(func(l *hold.Ledger) hold.Change { return l.FollowPlan(holder, pods, plan) })
}

// PodAssumed records that the scheduler's cache counts a pod on a node.
func (h *Shared) PodAssumed(pod types.UID, nodeName string) {
	h.changeHeld(func(l *hold.Ledger) hold.Change { return l.PodAssumed(pod, nodeName) })
}

// Release ends the places of pods in a plan. Capacity that was freed for them stays nominated.
func (h *Shared) Release(pods ...types.UID) {
	h.change(func(l *hold.Ledger) hold.Change { return l.Release(pods...) })
}

// ReportFreed reports that capacity was freed on these nodes: a hold ended, or a pod left its node.
func (h *Shared) ReportFreed(nodeNames ...string) {
	for _, tell := range h.onReport {
		tell()
	}
	for _, tell := range h.onFreed {
		for _, name := range nodeNames {
			tell(name)
		}
	}
}

// OnReport registers a function that is called whenever capacity is freed, on whichever node. The rules of OnFreed
// apply.
func (h *Shared) OnReport(tell func()) { h.onReport = append(h.onReport, tell) }

// OnFreed registers a function that is called with each node on which held capacity was freed: a pod that was refused
// waits for that, and no event of the cluster shows it. The function must not call back. OnFreed must be called before
// anything is held.
func (h *Shared) OnFreed(tell func(nodeName string)) { h.onFreed = append(h.onFreed, tell) }

// OnChange registers a function that is called with the pods whose holds have begun, changed or ended. Like that of
// OnFreed, it must not call back: it may record the pods and call [Shared.HoldOf] later.
func (h *Shared) OnChange(tell func([]types.UID)) { h.onChange = append(h.onChange, tell) }

// OnRenominate registers a function that is called with each pending pod whose nomination has ended, or is to another
// node than its status names. The rules of OnFreed apply.
func (h *Shared) OnRenominate(tell func(types.UID)) { h.onRenominate = append(h.onRenominate, tell) }

// NewClaim returns a new number for a decision to free capacity.
func (h *Shared) NewClaim() uint64 { return h.claims.Add(1) }

// Empty reports whether nothing is held anywhere.
func (h *Shared) Empty() bool { return h.held.Load() == 0 }

// read returns what f finds in the ledger: the zero value, without a lock, if nothing is held.
func read[T any](h *Shared, f func(*hold.Ledger) T) (found T) {
	if h.Empty() {
		return found
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return f(h.ledger)
}

// Holding returns the holders that hold anything; grants of the others are useless.
func (h *Shared) Holding(holders []hold.Holder) []hold.Holder {
	return read(h, func(l *hold.Ledger) (some []hold.Holder) {
		for _, holder := range holders {
			if l.Holds(holder) {
				some = append(some, holder)
			}
		}
		return some
	})
}

// Count returns the number of holds for a reason.
func (h *Shared) Count(r hold.Reason) int {
	return read(h, func(l *hold.Ledger) int { return l.Count(r) })
}

// Check reports whether a node has room for a pod beside what others than the given holders hold there. It checks
// resources and host ports only if something is held; the other filters check the rest.
func (h *Shared) Check(d Demand, info fwk.NodeInfo, holders ...hold.Holder) *fwk.Status {
	if h.Empty() {
		return nil
	}
	// Usually there is room beside the most that is held anywhere, and that needs no lookup.
	if most := h.maxHeld.Load(); most != nil && len(d.Ports) == 0 && !lacksRoom(d, info, *most) {
		return nil
	}
	h.mu.RLock()
	all, any := h.ledger.Total(info.Node().Name)
	h.mu.RUnlock()
	if !any || d.Fits(info, all) {
		return nil
	}
	taken, any := h.Others(info, holders...)
	if !any {
		return nil
	}
	if !d.Fits(info, taken) {
		return fwk.NewStatus(fwk.Unschedulable, ErrReasonHeld)
	}
	return nil
}

// Devices lists the holds with devices of holders other than the given ones.
func (h *Shared) Devices(holders ...hold.Holder) []hold.Hold {
	return read(h, func(l *hold.Ledger) []hold.Hold { return l.Devices(holders...) })
}

// Fits reports whether a node has room for the demand beside what is held there: held resources, places for pods, and
// host ports.
func (d Demand) Fits(info fwk.NodeInfo, held hold.Taken) bool {
	return !lacksRoom(d, info, held) && !portsConflict(d.Ports, held.Ports)
}

// Amount returns what the demand takes, for one pod.
func (d Demand) Amount() hold.Taken { return hold.Taken{Pods: 1, Request: d.Request, Ports: d.Ports} }

// Others returns what holders other than the given ones hold on a node. What is held for a pod that the NodeInfo
// counts, because it is assumed or nominated there, does not count twice.
func (h *Shared) Others(info fwk.NodeInfo, holders ...hold.Holder) (hold.Taken, bool) {
	if h.Empty() {
		return hold.Taken{}, false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Others(info.Node().Name, podsOn(info), holders...)
}

func podsOn(info fwk.NodeInfo) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		for _, p := range info.GetPods() {
			if !yield(p.GetPod().UID) {
				return
			}
		}
	}
}

// Nominate holds a node for a pod for which others are evicted. It is Recalled if the node is known only from the pod's
// status: statuses come late, so what this process has promised takes precedence. A pod that has a place in a plan
// keeps it.
func (h *Shared) Nominate(one hold.Hold) {
	one.Reason = hold.Nomination
	h.change(func(l *hold.Ledger) hold.Change {
		now, ok := l.Hold(hold.IDOf(one.For))
		if ok && (now.Reason != hold.Nomination || one.Recalled && !now.Recalled) {
			return hold.Change{}
		}
		return l.Put(one)
	})
}

// DropNomination ends the nomination of a pod, if any.
func (h *Shared) DropNomination(pod types.UID) {
	h.changeHeld(func(l *hold.Ledger) hold.Change { return l.DropNominations(pod) })
}

// NominationWritten reports that a nomination was written to the status of a pod. If it has ended meanwhile, the
// functions of OnRenominate are called.
func (h *Shared) NominationWritten(pod types.UID) {
	if _, stands := h.Nomination(pod); stands {
		return
	}
	for _, tell := range h.onRenominate {
		tell(pod)
	}
}

// DropRecalled ends the nomination of a pod if it is known only from its status.
func (h *Shared) DropRecalled(pod types.UID) {
	if one, ok := h.Nomination(pod); ok && one.Recalled {
		h.DropNomination(pod)
	}
}

// PodBound ends what is held for a pod that is bound.
func (h *Shared) PodBound(pod types.UID, nodeName string) {
	h.changeHeld(func(l *hold.Ledger) hold.Change { return l.PodBound(pod, nodeName) })
}

// Adopt transfers the nominations of pods to a holder: after a restart it is unknown which group a pod was nominated
// with, and a pod that was nominated with its gang may now be placed alone.
func (h *Shared) Adopt(holder hold.Holder, pods []types.UID) {
	h.changeHeld(func(l *hold.Ledger) hold.Change {
		for _, pod := range pods {
			if one, ok := l.Hold(hold.IDOf(pod)); ok && one.Reason == hold.Nomination && one.Holder != holder {
				one.Holder = holder
				l.Put(one)
			}
		}
		return hold.Change{}
	})
}

// Nomination returns the nomination of a pod.
func (h *Shared) Nomination(pod types.UID) (hold.Hold, bool) {
	one, ok := h.HoldOf(pod)
	return one, ok && one.Reason == hold.Nomination
}

// HoldOf returns what is held for a pod.
func (h *Shared) HoldOf(pod types.UID) (hold.Hold, bool) { return h.Hold(hold.IDOf(pod)) }

// Hold returns a whole hold, whatever pods have taken of it.
func (h *Shared) Hold(id hold.ID) (hold.Hold, bool) {
	if h.Empty() {
		return hold.Hold{}, false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Hold(id)
}

// NominatedBelow lists the holders with nominations below a priority.
func (h *Shared) NominatedBelow(priority int32) []hold.Holder {
	return read(h, func(l *hold.Ledger) []hold.Holder { return l.Holders(hold.Nomination, priority) })
}

// NominationsOf lists the nominations of a holder.
func (h *Shared) NominationsOf(holder hold.Holder) []hold.Hold {
	return slices.DeleteFunc(h.HoldsOf(holder), func(one hold.Hold) bool { return one.Reason != hold.Nomination })
}

// HoldsOf lists the holds of a holder.
func (h *Shared) HoldsOf(holder hold.Holder) []hold.Hold {
	return read(h, func(l *hold.Ledger) []hold.Hold { return l.HoldsOf(holder) })
}

// Among returns those of holders that hold something on any of these nodes.
func (h *Shared) Among(holders []hold.Holder, nodes iter.Seq[string]) []hold.Holder {
	return read(h, func(l *hold.Ledger) []hold.Holder { return l.Among(holders, nodes) })
}

// NodesOf lists the nodes on which one of these holders holds something.
func (h *Shared) NodesOf(holders ...hold.Holder) []string {
	return read(h, func(l *hold.Ledger) []string { return l.NodesOf(holders...) })
}

// Nominations lists the pods that have nominations, by holder.
func (h *Shared) Nominations() map[hold.Holder][]types.UID {
	return read(h, (*hold.Ledger).Nominations)
}

// Nominated reports whether a holder has nominations.
func (h *Shared) Nominated(holder hold.Holder) bool {
	return read(h, func(l *hold.Ledger) bool { return l.Nominated(holder) })
}

// DropNominations ends the nominations of a holder.
func (h *Shared) DropNominations(holder hold.Holder) {
	h.changeHeld(func(l *hold.Ledger) hold.Change {
		var pods []types.UID
		for _, one := range l.HoldsOf(holder) {
			pods = append(pods, one.For) // those without a nomination are skipped
		}
		return l.DropNominations(pods...)
	})
}

func lacksRoom(d Demand, info fwk.NodeInfo, taken hold.Taken) bool {
	has, used := info.GetAllocatable(), info.GetRequested()
	if len(info.GetPods())+taken.Pods+1 > has.GetAllowedPodNumber() {
		return true
	}
	for name, amount := range d.Request {
		if Amount(has, name) == 0 {
			continue // the node does not list it, but a DeviceClass may back it
		}
		if held := taken.Request[name]; held > 0 && Amount(has, name)-Amount(used, name)-held < amount {
			return true
		}
	}
	return false
}

// Amount returns one resource of a node.
func Amount(r fwk.Resource, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.GetMilliCPU()
	case v1.ResourceMemory:
		return r.GetMemory()
	case v1.ResourceEphemeralStorage:
		return r.GetEphemeralStorage()
	default:
		return r.GetScalarResources()[name]
	}
}

// portsConflict reports whether two pods want the same host port, by kube-scheduler's rules.
func portsConflict(mine, theirs []hold.Port) bool {
	if len(mine) == 0 || len(theirs) == 0 {
		return false
	}
	used := fwk.HostPortInfo{}
	for _, port := range theirs {
		used.Add(port.IP, port.Protocol, port.Number)
	}
	return slices.ContainsFunc(mine,
		func(port hold.Port) bool { return used.CheckConflict(port.IP, port.Protocol, port.Number) })
}
