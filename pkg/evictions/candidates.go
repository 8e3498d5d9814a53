package evictions

import (
	"fmt"
	"maps"
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
	"github.com/lockstep-sh/lockstep/pkg/util/times"
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
// are the ending pods that are not [Stuck].
func Ending(nodes Nodes, underway map[types.UID]bool, now time.Time) (ending map[types.UID]bool, leaving []Place) {
	ending = maps.Clone(underway)
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
	unknownGangs map[Owner][]*v1.Pod
}

// Candidate is a gang that may lose pods, or several that start together.
type Candidate struct {
	Of Owner
	// Gangs is empty for a single pod.
	Gangs []gangstate.RunningGang
	// pod is the first of its pods that was found.
	pod *v1.Pod
}

// Name returns its name for users.
func (c Candidate) Name() string {
	switch len(c.Gangs) {
	case 0:
		return fmt.Sprintf("pod %s/%s", c.pod.Namespace, c.pod.Name)
	case 1:
		return "gang " + c.Gangs[0].Key.String()
	}
	names := make([]string, len(c.Gangs))
	for i, f := range c.Gangs {
		names[i] = f.Key.String()
	}
	return "gangs " + strings.Join(names, ", ")
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

// GangsOn lists the gangs that have pods on these nodes, each with all its pods. Pods that must not be evicted are
// protected. If gangs do not count, every pod is its own candidate.
func (c *Candidates) GangsOn(nodes []int, permits func(*v1.Pod) bool, gangsCount bool) []victim.Gang {
	if c.known == nil {
		c.known, c.pods, c.places = map[string]Candidate{}, map[types.UID]*v1.Pod{}, map[types.UID]Place{}
	}
	local := make(map[int]bool, len(nodes))
	for _, node := range nodes {
		local[node] = true
		for _, info := range c.Nodes.Node(node).GetPods() {
			c.places[info.GetPod().UID] = Place{info, node}
		}
	}
	var gangs []victim.Gang
	listed := map[Owner]bool{}
	for _, node := range nodes {
		for _, info := range c.Nodes.Node(node).GetPods() {
			pod := info.GetPod()
			if c.Ending[pod.UID] {
				continue
			}
			of := OwnerOf(c.Gangs, pod)
			if listed[of] || c.Own[of] {
				continue
			}
			if !gangsCount {
				of = Owner{Pod: pod.UID}
			}
			id := of.ID()
			running := c.runningGangs(id, of, pod)
			if !of.IsPod() {
				for _, f := range running {
					listed[Owner{Profile: of.Profile, Gang: f.Key}] = true
				}
			}
			gangs = append(gangs, c.gangOf(id, running, local, c.unlessProtected(of, running, permits)))
		}
	}
	return gangs
}

// unlessProtected returns which pods of gangs that start together may be evicted: none while the gangs are protected.
func (c *Candidates) unlessProtected(of Owner, running []gangstate.RunningGang,
	permits func(*v1.Pod) bool) func(*v1.Pod) bool {
	end := c.protectionEnd(of, running)
	if !end.After(c.Now) {
		return permits
	}
	return func(pod *v1.Pod) bool {
		if permits(pod) {
			c.protectedUntil = times.Earlier(c.protectedUntil, end)
		}
		return false
	}
}

// gangOf returns the candidate of which this runs. Gangs that start together are useful only together: they are the
// parts of one candidate. local are the searched nodes.
func (c *Candidates) gangOf(id string, running []gangstate.RunningGang, local map[int]bool,
	permits func(*v1.Pod) bool) victim.Gang {
	g := victim.Gang{ID: id, Priority: math.MinInt32, Created: running[0].Created}
	if first := running[0].Running; c.Queue != nil && len(first) > 0 {
		g.Queue = c.Queue(first[0].Pod)
	}
	for _, f := range running {
		part, roles := "", ""
		if len(running) > 1 {
			part, roles = f.Key.String(), f.Key.String()+"/"
		}
		if f.Whole || c.inRepair(f) {
			f.Min, f.MinByRole = c.remaining(f), nil // all its running pods or none
		}
		// Finished members reduce the minimum, but not the minimums by role.
		f.Min = max(f.Min, sum(f.MinByRole))
		g.Min += f.Min
		if part != "" {
			g.MinByPart = with(g.MinByPart, part, f.Min)
		}
		for role, n := range f.MinByRole {
			g.MinByRole = with(g.MinByRole, roles+role, n)
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

func sum(byRole map[string]int) int {
	n := 0
	for _, least := range byRole {
		n += least
	}
	return n
}

// with returns a map with one more entry. Most gangs have none.
func with(m map[string]int, key string, n int) map[string]int {
	if m == nil {
		m = map[string]int{}
	}
	m[key] = n
	return m
}

func (c *Candidates) podOf(member gangstate.Placed, local map[int]bool) victim.Pod {
	pod := member.Pod
	c.pods[pod.UID] = pod
	request, here := victim.Vector{}, false
	if at, ok := c.placeOf(member); ok {
		request, here = c.Request(at.Info), local[at.Node]
	}
	deletion, _ := corehelper.GetDeletionCostFromPodAnnotations(pod.Annotations) // 0 if it is invalid
	return victim.Pod{
		UID: pod.UID, Request: request, Role: pod.Labels[v1alpha1.RoleLabel], Priority: corev1helpers.PodPriority(pod),
		Number: member.Number, DeletionCost: deletion, Created: pod.CreationTimestamp.Time, Local: here,
		Guards: c.Budgets.Guards(pod),
	}
}

// runningGangs returns what runs of a gang, and of the gangs that start together with it if any of their pods run. If
// its profile knows no running pods of the gang, its pods are looked up on the nodes.
func (c *Candidates) runningGangs(id string, of Owner, pod *v1.Pod) []gangstate.RunningGang {
	if of.IsPod() {
		c.known[id] = Candidate{Of: of, pod: pod}
		return []gangstate.RunningGang{{Min: 1, Created: pod.CreationTimestamp.Time, Running: []gangstate.Placed{{Pod: pod}}}}
	}
	together, _ := running(c.Gangs, of)
	if !slices.ContainsFunc(together, isOf(of)) {
		if c.unknownGangs == nil {
			c.unknownGangs = byGang(c.Gangs, c.staysOnNodes)
		}
		together = []gangstate.RunningGang{runningGangOf(c.Gangs, of, c.unknownGangs[of])}
	}
	c.known[id] = Candidate{Of: of, Gangs: together, pod: pod}
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

// placeOf returns where a member is, on the searched nodes or elsewhere; false if it is on no node.
func (c *Candidates) placeOf(member gangstate.Placed) (Place, bool) {
	if at, known := c.places[member.Pod.UID]; known {
		return at, true
	}
	node, ok := c.Nodes.Index(member.Node)
	if !ok {
		return Place{}, false
	}
	for _, info := range c.Nodes.Node(node).GetPods() {
		if info.GetPod().UID == member.Pod.UID {
			c.places[member.Pod.UID] = Place{info, node}
			return Place{info, node}, true
		}
	}
	return Place{}, false
}
