// Package holds shares one ledger of held capacity between the plugins of all
// profiles of a process: what one profile promises, pods of the others respect.
//
// It is the only lock around the ledger. It never calls out while it holds it.
package holds

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// ErrReasonHeld is the reason of nodes that have room, but hold it for others.
const ErrReasonHeld = "node(s) with capacity held for others"

// Demand is what a pod takes of a node.
type Demand struct {
	Request resource.Vector
	Ports   []hold.Port
}

// DemandOf reads what a pod takes of a node.
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
	d.Ports = portsOf(info.GetPod())
	return d
}

func portsOf(pod *v1.Pod) []hold.Port {
	var ports []hold.Port
	for _, port := range util.GetHostPorts(pod) {
		ports = append(ports, hold.Port{IP: port.HostIP, Protocol: string(port.Protocol), Number: port.HostPort})
	}
	return ports
}

// Holds is the shared ledger. It is safe for concurrent use.
type Holds struct {
	mu     sync.RWMutex
	ledger *hold.Ledger
	// held mirrors the number of holds, so that the common case, none at all,
	// costs no lock.
	held atomic.Int64
	// ended and freed count what the profiles tell each other of; see Ended, Freed.
	ended, freed atomic.Uint64
	// changed are called with the pods whose holds have changed; see OnChange.
	changed []func([]types.UID)
}

// New makes an empty ledger.
func New() *Holds { return &Holds{ledger: hold.NewLedger()} }

// OnChange has a function called with the pods whose holds begin, change or end, after they did.
// The caller may have locks of its own: the function has to note the pods and ask [Holds.Of]
// later. It has to be registered before the ledger is used.
func (h *Holds) OnChange(changed func(pods []types.UID)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = append(h.changed, changed)
}

// tell calls the functions of OnChange; without the lock.
func (h *Holds) tell(pods ...types.UID) {
	if len(pods) == 0 {
		return
	}
	for _, changed := range h.changed {
		changed(pods)
	}
}

// Of returns the hold of a pod.
func (h *Holds) Of(pod types.UID) (hold.Hold, bool) {
	if h.Empty() {
		return hold.Hold{}, false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Hold(pod)
}

// Put adds holds, each in place of the one that its pod had.
func (h *Holds) Put(holds ...hold.Hold) {
	pods := make([]types.UID, len(holds))
	h.mu.Lock()
	for i, one := range holds {
		h.ledger.Put(one)
		pods[i] = one.For
	}
	h.held.Store(int64(h.ledger.Len()))
	h.mu.Unlock()
	h.tell(pods...)
}

// Drop ends the holds of pods; those that have none are passed over.
func (h *Holds) Drop(pods ...types.UID) {
	h.mu.Lock()
	for _, pod := range pods {
		h.ledger.Drop(pod)
	}
	h.held.Store(int64(h.ledger.Len()))
	h.ended.Add(1)
	h.mu.Unlock()
	h.tell(pods...)
}

// NoteFreed notes that capacity came back which nobody will use now: that of a
// hold which was dropped, or that of a pod which gave back its node.
func (h *Holds) NoteFreed() {
	h.freed.Add(1)
	h.ended.Add(1)
}

// Ended changes whenever a hold may have ended, whatever became of the capacity. A
// pod that was refused for what is held waits for it: no event of the cluster tells.
func (h *Holds) Ended() uint64 { return h.ended.Load() }

// Freed changes whenever capacity comes back, in whichever profile.
func (h *Holds) Freed() uint64 { return h.freed.Load() }

// Empty tells that nothing is held anywhere.
func (h *Holds) Empty() bool { return h.held.Load() == 0 }

// Count is the number of holds for a reason.
func (h *Holds) Count(r hold.Reason) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Count(r)
}

// Check tells whether a node has room for a pod besides what is held there for
// others than the given holders. It looks at resources and host ports only where
// something is held; whether the pod fits otherwise is for the other filters.
func (h *Holds) Check(d Demand, info fwk.NodeInfo, holders ...string) *fwk.Status {
	if h.Empty() {
		return nil
	}
	taken, any := h.Others(info, holders...)
	if !any {
		return nil
	}
	if short(d, info, taken) || clash(d.Ports, taken.Ports) {
		return fwk.NewStatus(fwk.Unschedulable, ErrReasonHeld)
	}
	return nil
}

// Others is what is held on a node for others than the given holders. What is held for
// a pod that the NodeInfo has on the node, because it is assumed or nominated there,
// does not count twice.
func (h *Holds) Others(info fwk.NodeInfo, holders ...string) (hold.Taken, bool) {
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

// Holder is the name in the ledger of a group of gangs of a profile. All profiles share
// the ledger.
func Holder(profile, group string) string { return profile + "/" + group }

// PodGroup is the group of a pod that is placed by itself. No gang has such a key.
func PodGroup(pod types.UID) string { return podPrefix + string(pod) }

// IsPod tells groups that are a pod by itself.
func IsPod(group string) bool { return strings.HasPrefix(group, podPrefix) }

const podPrefix = "pod:"

// Nominate holds a node for a pod for which others are evicted. A pod that has a place
// in a plan keeps that.
func (h *Holds) Nominate(holder string, pod types.UID, node string, priority int32, d Demand) {
	h.nominate(hold.Hold{For: pod, Holder: holder, Node: node, Priority: priority, Request: d.Request, Ports: d.Ports})
}

// Recall holds the node that a pod's status says it was nominated to. Statuses come late:
// what this process promised itself stands against them.
func (h *Holds) Recall(holder string, pod types.UID, node string, priority int32, d Demand) {
	h.nominate(hold.Hold{For: pod, Holder: holder, Node: node, Priority: priority, Request: d.Request, Ports: d.Ports, Recalled: true})
}

func (h *Holds) nominate(one hold.Hold) {
	one.Reason = hold.Nomination
	if h.putNomination(one) {
		h.tell(one.For)
	}
}

func (h *Holds) putNomination(one hold.Hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now, ok := h.ledger.Hold(one.For); ok && (now.Reason != hold.Nomination || one.Recalled && !now.Recalled) {
		return false
	}
	h.ledger.Put(one)
	h.held.Store(int64(h.ledger.Len()))
	return true
}

// DropNomination ends the nomination of a pod if it has one; with recalled, only if
// that is known from its status alone.
func (h *Holds) DropNomination(pod types.UID, recalled bool) {
	if !h.Empty() && h.dropNomination(pod, recalled) {
		h.tell(pod)
	}
}

func (h *Holds) dropNomination(pod types.UID, recalled bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, ok := h.ledger.Hold(pod)
	if !ok || now.Reason != hold.Nomination || recalled && !now.Recalled {
		return false
	}
	h.ledger.Drop(pod)
	h.held.Store(int64(h.ledger.Len()))
	h.NoteFreed()
	return true
}

// Adopt makes the nominations of pods those of a holder: after a restart nobody knows
// which group a pod was nominated with.
func (h *Holds) Adopt(holder string, pods []types.UID) {
	if h.Empty() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pod := range pods {
		if one, ok := h.ledger.Hold(pod); ok && one.Reason == hold.Nomination && one.Holder != holder {
			one.Holder = holder
			h.ledger.Put(one)
		}
	}
}

// Promised tells that a pod has a nomination which this process made.
func (h *Holds) Promised(pod types.UID) bool {
	if h.Empty() {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	one, ok := h.ledger.Hold(pod)
	return ok && one.Reason == hold.Nomination && !one.Recalled
}

// NominatedBelow lists who has nominations of less than a priority.
func (h *Holds) NominatedBelow(priority int32) []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Holders(hold.Nomination, priority)
}

// NominationsOf lists the nominations of a holder.
func (h *Holds) NominationsOf(holder string) []hold.Hold {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Of(holder, hold.Nomination)
}

// Among leaves of holders those that hold something on any of these nodes.
func (h *Holds) Among(holders []string, nodes iter.Seq[string]) []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	on := map[string]bool{}
	for node := range nodes {
		for _, holder := range h.ledger.On(node) {
			on[holder] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(holders), func(holder string) bool { return !on[holder] })
}

// Nominations lists the pods that have nominations, by holder.
func (h *Holds) Nominations() map[string][]types.UID {
	if h.Empty() {
		return nil
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := map[string][]types.UID{}
	for _, holder := range h.ledger.Holders(hold.Nomination, math.MaxInt32) {
		for _, one := range h.ledger.Of(holder, hold.Nomination) {
			list[holder] = append(list[holder], one.For)
		}
	}
	return list
}

// DropNominations ends the nominations of a holder, of these pods if any are given.
func (h *Holds) DropNominations(holder string, pods ...types.UID) {
	var drop []types.UID
	for _, one := range h.NominationsOf(holder) {
		if len(pods) == 0 || slices.Contains(pods, one.For) {
			drop = append(drop, one.For)
		}
	}
	if len(drop) > 0 {
		h.Drop(drop...)
		h.NoteFreed()
	}
}

func short(d Demand, info fwk.NodeInfo, taken hold.Taken) bool {
	has, used := info.GetAllocatable(), info.GetRequested()
	if len(info.GetPods())+taken.Pods+1 > has.GetAllowedPodNumber() {
		return true
	}
	for name, amount := range d.Request {
		if held := taken.Request[name]; held > 0 && Amount(has, name)-Amount(used, name)-held < amount {
			return true
		}
	}
	return false
}

// Amount reads one resource of a node.
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

// clash tells whether two pods want the same host port, as kube-scheduler judges
// pods on a node.
func clash(mine, theirs []hold.Port) bool {
	if len(mine) == 0 || len(theirs) == 0 {
		return false
	}
	used := fwk.HostPortInfo{}
	for _, port := range theirs {
		used.Add(port.IP, port.Protocol, port.Number)
	}
	return slices.ContainsFunc(mine, func(port hold.Port) bool { return used.CheckConflict(port.IP, port.Protocol, port.Number) })
}

// String sums up the ledger for logs.
func (h *Holds) String() string { return fmt.Sprintf("%d held", h.held.Load()) }
