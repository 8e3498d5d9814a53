package workload

import (
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Owner is what makes the pods of a gang.
type Owner string

// The owners.
const (
	Bare       Owner = "bare"
	Job        Owner = "Job"
	ReplicaSet Owner = "ReplicaSet"
)

// Join is how pods say which gang they are in.
type Join string

// The ways to join; None is a pod in no gang.
const (
	None       Join = "none"
	Annotation Join = "annotation"
	PodGroup   Join = "PodGroup"
)

// Gang is a gang, or a single pod.
type Gang struct {
	Namespace, Name string
	Owner           Owner
	Join            Join
	// Size is how many members it is created with, Min how many have to start together.
	Size, Min int
	// What each member asks for.
	GPUs, MilliCPU, MemoryMi int
	// Level of its priority, from 0.
	Level     int
	NonStrict bool
	// Rack: all members in one rack.
	Rack bool
	// Groups are the gangs that start together, itself included, as namespace/name.
	Groups []string
	// Queue is empty where queues are not in use.
	Queue string
	// ByName: its pods go where the Reservation of its work is, or nowhere.
	ByName bool
	// Completes is how long a member runs until it succeeds; 0: until it is deleted.
	Completes time.Duration
	// Completions of a Job; its parallelism is Size.
	Completions int
}

// Namespaces are where gangs are.
var Namespaces = []string{"chaos-a", "chaos-b"}

// Levels are the priorities, from low to high.
var Levels = []int32{0, 100, 1000}

// makeWork makes up work number n.
func makeWork(o Options, r *rand.Rand, n int) Work {
	g := Gang{Name: fmt.Sprintf("w%05d", n), Namespace: Namespaces[r.IntN(len(Namespaces))], Owner: Bare}
	g.Level = pick(r, 50, 30, 20)
	if o.Queues {
		g.Queue = queueNames[r.IntN(len(queueNames))]
	}
	if o.Moves && chance(r, 35) {
		return Work{Gangs: []Gang{service(r, g)}}
	}
	if chance(r, 12) {
		return Work{Gangs: []Gang{single(r, g)}}
	}
	g.Owner = []Owner{Bare, Job, ReplicaSet}[pick(r, 40, 35, 25)]
	g.Join = []Join{Annotation, PodGroup}[pick(r, 50, 50)]
	shape(o, r, &g)
	g.NonStrict = chance(r, 12)
	if g.Owner != ReplicaSet && chance(r, 45) {
		g.Completes = between(r, 3*time.Second, 20*time.Second).Truncate(time.Second)
	}
	if g.Owner == Job {
		g.Completions = g.Size
		if g.Completes > 0 && chance(r, 30) {
			g.Completions += 1 + r.IntN(g.Size)
		}
	}
	if chance(r, 12) {
		return group(r, g)
	}
	return Work{Gangs: []Gang{g}}
}

// service makes pods in no gang, that are alike and run on.
func service(r *rand.Rand, g Gang) Gang {
	g.Owner, g.Join, g.Size, g.Min = ReplicaSet, None, 1+r.IntN(4), 1
	g.GPUs = []int{1, 2, 3}[pick(r, 50, 35, 15)]
	g.MilliCPU, g.MemoryMi = 1000*g.GPUs, 2048*g.GPUs
	return g
}

// single makes a pod in no gang.
func single(r *rand.Rand, g Gang) Gang {
	g.Join, g.Size, g.Min = None, 1, 1
	g.GPUs, g.MilliCPU, g.MemoryMi = []int{0, 1, 4, 8}[pick(r, 30, 30, 25, 15)], 2000, 2048
	if chance(r, 50) {
		g.Completes = between(r, 3*time.Second, 20*time.Second).Truncate(time.Second)
	}
	return g
}

// shape makes up members and what they ask for: not more than an eighth of the cluster, and of a
// rack where it is required.
func shape(o Options, r *rand.Rand, g *Gang) {
	g.Rack = chance(r, 25)
	most := o.Nodes * o.GPUs / 8
	if g.Rack {
		most = min(most, o.NodesPerRack*o.GPUs*3/4)
	}
	g.GPUs = []int{1, 2, 4, 8}[pick(r, 20, 30, 30, 20)]
	g.Min = min(2+r.IntN(5), max(2, most/g.GPUs))
	if g.GPUs <= 2 && chance(r, 20) {
		g.Min = min(8+r.IntN(9), most/g.GPUs)
	}
	g.Size = g.Min
	if chance(r, 40) {
		g.Size = max(g.Min, min(g.Min+1+r.IntN(g.Min), most/g.GPUs))
	}
	g.MilliCPU, g.MemoryMi = 2000*g.GPUs, 4096*g.GPUs
	switch {
	case g.GPUs == 1 && chance(r, 30):
		g.MilliCPU = 12000
	case g.GPUs == 1 && chance(r, 30):
		g.MemoryMi = 48 * 1024
	}
}

// group makes two gangs out of one, in two namespaces, that start together.
func group(r *rand.Rand, first Gang) Work {
	first.Namespace = Namespaces[0]
	second := first
	second.Namespace, second.Name = Namespaces[1], first.Name+"x"
	second.Min = max(1, first.Min-r.IntN(2))
	first.Groups = []string{first.Namespace + "/" + first.Name, second.Namespace + "/" + second.Name}
	second.Groups = first.Groups
	return Work{Gangs: []Gang{first, second}}
}

// pick returns an index with a probability of so many percent each.
func pick(r *rand.Rand, percents ...int) int {
	n := r.IntN(100)
	for i, percent := range percents {
		if n -= percent; n < 0 {
			return i
		}
	}
	return len(percents) - 1
}

// Queues are the queues of a run with queues, parents first.
var Queues = []*v1alpha1.Queue{
	queue("research", v1alpha1.QueueSpec{Weight: 2}),
	queue("vision", v1alpha1.QueueSpec{Parent: "research", Weight: 1, Guarantee: gpus(64)}),
	queue("speech", v1alpha1.QueueSpec{Parent: "research", Weight: 1, Capability: gpus(192)}),
	queue("product", v1alpha1.QueueSpec{Weight: 1, Guarantee: gpus(96)}),
	queue("guests", v1alpha1.QueueSpec{Weight: 1, Capability: gpus(128)}),
}

func queue(name string, spec v1alpha1.QueueSpec) *v1alpha1.Queue {
	return &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// queueNames are the queues that gangs are in.
var queueNames = []string{"vision", "speech", "product", "guests", "default"}
