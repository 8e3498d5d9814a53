package evictions

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	corehelper "k8s.io/kubernetes/pkg/apis/core/helper"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// Nodes are the nodes of the cluster, by index.
type Nodes interface {
	Len() int
	Node(node int) fwk.NodeInfo
	Index(name string) (node int, ok bool)
}

// Place is where a pod is.
type Place struct {
	Info fwk.PodInfo
	Node int
}

// Ending returns the pods that end without being chosen: those that are being deleted, and those being evicted. leaving
// are those of them that are not [Stuck].
func Ending(nodes Nodes, underway map[types.UID]bool, now time.Time) (ending map[types.UID]bool, leaving []Place) {
	ending = underway
	for node := range nodes.Len() {
		for _, info := range nodes.Node(node).GetPods() {
			pod := info.GetPod()
			if pod.DeletionTimestamp == nil && !ending[pod.UID] {
				continue
			}
			ending[pod.UID] = true
			if !Stuck(pod, now) { // a stuck pod may never end
				leaving = append(leaving, Place{info, node})
			}
		}
	}
	return ending, leaving
}

// Candidates turns the pods on nodes into gangs that may lose some of them, as values for package victim. It serves one
// search, on one goroutine.
type Candidates struct {
	Nodes Nodes
	Gangs Gangs
	// Budgets are the PodDisruptionBudgets; nil for none.
	Budgets *Budgets
	// Own are the gangs that capacity is sought for; they are no candidates.
	Own map[Owner]bool
	// Ending are the pods that end without being chosen, see [Ending].
	Ending map[types.UID]bool
	// Request returns what the end of a pod frees.
	Request func(fwk.PodInfo) victim.Vector
	// Queue returns the queue of a pod; nil without queues.
	Queue func(*v1.Pod) string
	// Now is when the search began. Grace is how long a gang below its minimum counts as being in repair.
	Now   time.Time
	Grace time.Duration
	// Protection protects gangs for some time.
	Protection Protection

	protectedUntil time.Time
	known          map[string]Candidate
	pods           map[types.UID]*v1.Pod
	places         map[types.UID]Place
	// unknownGangs are the pods of gangs that no profile knows; computed when first needed.
	unknownGangs map[Owner][]gangstate.Placed
}

// Candidate is a gang that may lose pods, or several that start together.
type Candidate struct {
	// Name is its name for users, Of its identity.
	Name string
	Of   Owner
	// Gangs is empty for a single pod.
	Gangs []gangstate.Footprint
}

// ProtectedUntil returns when the first protection ends among gangs with otherwise evictable pods; zero for none.
func (c *Candidates) ProtectedUntil() time.Time { return c.protectedUntil }

// Known returns the candidates so far, by their gang IDs in the problem.
func (c *Candidates) Known() map[string]Candidate { return c.known }

// Pod returns a pod of a candidate.
func (c *Candidates) Pod(uid types.UID) *v1.Pod { return c.pods[uid] }

// Place returns where a pod of a candidate is; false if it is on none of the nodes.
func (c *Candidates) Place(uid types.UID) (Place, bool) {
	at, ok := c.places[uid]
	return at, ok
}

// On lists the gangs that have pods on these nodes, each with all its pods. Pods that must not be evicted are
// protected. If gangs do not count, every pod is its own candidate.
func (c *Candidates) On(nodes []int, permits func(*v1.Pod) bool, gangsCount bool) []victim.Gang {
	if c.known == nil {
		c.known, c.pods, c.places = map[string]Candidate{}, map[types.UID]*v1.Pod{}, map[types.UID]Place{}
	}
	local := map[types.UID]victim.Vector{}
	var owners []Owner
	first := map[Owner]*v1.Pod{}
	for _, node := range nodes {
		for _, info := range c.Nodes.Node(node).GetPods() {
			pod := info.GetPod()
			of := OwnerOf(c.Gangs, pod)
			if c.Ending[pod.UID] || c.Own[of] {
				continue
			}
			if !gangsCount {
				of = Owner{Pod: pod.UID}
			}
			local[pod.UID] = c.Request(info)
			c.places[pod.UID] = Place{info, node}
			if first[of] == nil {
				first[of] = pod
				owners = append(owners, of)
			}
		}
	}
	gangs := make([]victim.Gang, 0, len(owners))
	known := map[Owner]bool{}
	for _, of := range owners {
		if known[of] {
			continue // already listed with another gang
		}
		footprints := c.footprints(of, first[of])
		for _, f := range footprints {
			known[Owner{Profile: of.Profile, Gang: f.Key}] = true
		}
		gangs = append(gangs, c.gangOf(of.ID(), footprints, local, c.unlessProtected(of, footprints, permits)))
	}
	return gangs
}

// unlessProtected returns which pods of gangs that start together may be evicted: none while the gangs are protected.
func (c *Candidates) unlessProtected(of Owner, footprints []gangstate.Footprint,
	permits func(*v1.Pod) bool) func(*v1.Pod) bool {
	end := c.Protection.until(of, footprints, c.broken, c.Now)
	if !end.After(c.Now) {
		return permits
	}
	return func(pod *v1.Pod) bool {
		if permits(pod) && (c.protectedUntil.IsZero() || end.Before(c.protectedUntil)) {
			c.protectedUntil = end
		}
		return false
	}
}

// gangOf returns the candidate with these footprints. Gangs that start together are useful only together: they are the
// parts of one candidate. local has the requests of the pods on the searched nodes.
func (c *Candidates) gangOf(id string, footprints []gangstate.Footprint, local map[types.UID]victim.Vector,
	permits func(*v1.Pod) bool) victim.Gang {
	g := victim.Gang{ID: id, Priority: math.MinInt32, Created: footprints[0].Created,
		MinByRole: map[string]int{}, MinByPart: map[string]int{}}
	if first := footprints[0].Running; c.Queue != nil && len(first) > 0 {
		g.Queue = c.Queue(first[0].Pod)
	}
	for _, f := range footprints {
		part, roles := "", ""
		if len(footprints) > 1 {
			part, roles = f.Key.String(), f.Key.String()+"/"
		}
		if f.Whole || c.inRepair(f) {
			f.Min, f.MinByRole = c.remaining(f), nil // all its running pods or none
		}
		// Finished members reduce the minimum, but not the minimums by role.
		f.Min = max(f.Min, sum(f.MinByRole))
		g.Min += f.Min
		if part != "" {
			g.MinByPart[part] = f.Min
		}
		for role, n := range f.MinByRole {
			g.MinByRole[roles+role] = n
		}
		for _, member := range f.Running {
			if c.Ending[member.Pod.UID] {
				continue
			}
			pod := c.podOf(member, local)
			pod.Part, pod.Role, pod.Protected = part, roles+pod.Role, !permits(member.Pod)
			g.Priority = max(g.Priority, pod.Priority)
			g.Pods = append(g.Pods, pod)
		}
	}
	return g
}

// inRepair reports whether a gang has been below its minimum for less than Grace: its members are being replaced, or
// are starting for the first time. For a gang that no profile knows the start is unknown. The running pods of a growing
// gang are useful.
func (c *Candidates) inRepair(f gangstate.Footprint) bool {
	return !Enough(f, c.Ending) && (f.Grows || f.BrokenSince.IsZero() || c.Now.Sub(f.BrokenSince) < c.Grace)
}

// broken reports whether a gang is below its minimum and not in repair.
func (c *Candidates) broken(f gangstate.Footprint) bool {
	return !Enough(f, c.Ending) && !c.inRepair(f)
}

// remaining returns how many members of a gang run and are not ending.
func (c *Candidates) remaining(f gangstate.Footprint) int {
	n := 0
	for _, member := range f.Running {
		if !c.Ending[member.Pod.UID] {
			n++
		}
	}
	return n
}

func sum(byRole map[string]int) int {
	n := 0
	for _, least := range byRole {
		n += least
	}
	return n
}

func (c *Candidates) podOf(member gangstate.Placed, local map[types.UID]victim.Vector) victim.Pod {
	pod := member.Pod
	request, here := local[pod.UID]
	if !here {
		request = c.requestElsewhere(member)
	}
	c.pods[pod.UID] = pod
	deletion, _ := corehelper.GetDeletionCostFromPodAnnotations(pod.Annotations) // 0 if it is invalid
	return victim.Pod{
		UID: pod.UID, Request: request, Role: pod.Labels[v1alpha1.RoleLabel], Priority: corev1helpers.PodPriority(pod),
		Number: member.Number, DeletionCost: deletion, Created: pod.CreationTimestamp.Time, Local: here, Guards: c.Budgets.Guards(pod),
	}
}

// footprints returns the footprint of a gang, and of the gangs that start together with it if any of their pods run. If
// its profile knows no running pods of the gang, its pods are looked up on the nodes.
func (c *Candidates) footprints(of Owner, pod *v1.Pod) []gangstate.Footprint {
	if of.IsPod() {
		c.known[of.ID()] = Candidate{Of: of, Name: fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)}
		return []gangstate.Footprint{{Min: 1, Created: pod.CreationTimestamp.Time, Running: []gangstate.Placed{{Pod: pod}}}}
	}
	together, _ := running(c.Gangs, of)
	if !slices.ContainsFunc(together, isFootprintOf(of)) {
		if c.unknownGangs == nil {
			c.unknownGangs = byGang(c.Gangs, c.staysOnNodes)
		}
		together = []gangstate.Footprint{unknownGang(of, pod, c.unknownGangs)}
	}
	var names []string
	for _, f := range together {
		names = append(names, f.Key.String())
	}
	name := "gang " + names[0]
	if len(names) > 1 {
		name = "gangs " + strings.Join(names, ", ")
	}
	c.known[of.ID()] = Candidate{Of: of, Name: name, Gangs: together}
	return together
}

// staysOnNodes yields the pods of all nodes that are not ending.
func (c *Candidates) staysOnNodes(yield func(*v1.Pod) bool) {
	for node := range c.Nodes.Len() {
		for _, info := range c.Nodes.Node(node).GetPods() {
			if pod := info.GetPod(); !c.Ending[pod.UID] && !yield(pod) {
				return
			}
		}
	}
}

// requestElsewhere returns the request of a pod outside the searched nodes.
func (c *Candidates) requestElsewhere(member gangstate.Placed) victim.Vector {
	node, ok := c.Nodes.Index(member.Node)
	if !ok {
		return victim.Vector{}
	}
	for _, info := range c.Nodes.Node(node).GetPods() {
		if info.GetPod().UID == member.Pod.UID {
			c.places[member.Pod.UID] = Place{info, node}
			return c.Request(info)
		}
	}
	return victim.Vector{}
}
