// Package decisions remembers what was decided for each gang: what it asked for, where it was tried, which pods would
// have to be evicted, and the result.
//
// It decides nothing. It keeps the last [PerGroup] decisions of each of the last [Groups] groups of gangs for which
// anything was decided. A decision that is made again is counted, not kept twice, so that a gang which fails for hours,
// or is promised room and loses it in turn, does not push out the reason why that began.
package decisions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// PerGroup is how many decisions of a group are kept.
	PerGroup = 16
	// Groups is how many groups are remembered.
	Groups = 512
	// Domains is how many domains of a decision are kept.
	Domains = 16
)

// What is decided.
const (
	// Placement is where a gang goes.
	Placement = "Placement"
	// Preemption is which pods make way for it.
	Preemption = "Preemption"
)

// The result.
const (
	// Placed: all members that the minimum needs have a node; the binding follows.
	Placed = "Placed"
	// Held: some members have a node, which a NonStrict gang keeps while it waits for the others.
	Held = "Held"
	// Unplaced: no member has a node.
	Unplaced = "Unplaced"
	// Evict: the victims will be evicted. It does not mean that they were: [Withdrawn] follows where they were not.
	Evict = "Evict"
	// Withdrawn: the decision was not carried out, since the cluster had changed.
	Withdrawn = "Withdrawn"
	// NoVictims: no choice of victims makes room.
	NoVictims = "NoVictims"
)

// Decision is what was decided for one group of gangs.
type Decision struct {
	// At is when it was first made, Last when it was last made, and Times how often. Other decisions may have been made in
	// between.
	At    metav1.MicroTime `json:"at"`
	Last  metav1.MicroTime `json:"last"`
	Times int              `json:"times"`
	// Kind is [Placement] or [Preemption].
	Kind    string `json:"kind"`
	Profile string `json:"profile"`
	// Gangs are those that start together; the name of the pod where it is in no gang.
	Gangs []string `json:"gangs"`
	// Need is what their minimum asks for: how many members, or how much of each resource.
	Need string `json:"need"`
	// Fits are, of a placement that failed, the domains in which most members fit, the best first; Domains are, of a
	// preemption, those that were searched for victims, in order. Untried is how many others there are.
	Fits    []Fit    `json:"fits,omitempty"`
	Domains []Domain `json:"domains,omitempty"`
	Untried int      `json:"untried,omitempty"`
	// Together: the gangs must share a domain, so the fits of each are those of all.
	Together bool `json:"together,omitempty"`
	// Refusals counts the nodes, of so many that were Visited, that refused members of a placement that failed, by reason.
	Refusals map[string]int `json:"refusals,omitempty"`
	Visited  int            `json:"visited,omitempty"`
	// Hopeless: it would not fit either if the cluster were empty.
	Hopeless bool `json:"hopeless,omitempty"`
	// EmptyCluster is how much of it would fit then, in words; empty where that is not known by members.
	EmptyCluster string `json:"emptyCluster,omitempty"`
	// Bundles are the victims that were chosen, and Violating is how many of their pods no PodDisruptionBudget lets go.
	Bundles   []Bundle `json:"bundles,omitempty"`
	Violating int      `json:"violating,omitempty"`
	// Result is the result, Chosen the domain where there is one, and Nodes how many nodes are used.
	Result string `json:"result"`
	Chosen string `json:"chosen,omitempty"`
	Nodes  int    `json:"nodes,omitempty"`
	// Why is why not, in the words that users get.
	Why string `json:"why,omitempty"`
}

// Fit is how many members of a gang fit in a domain.
type Fit struct {
	// Gang is the gang, as namespace/name.
	Gang string `json:"gang"`
	// Topology is the label key of the topology that it requires, and Domain a value of it; both are empty for the whole
	// cluster. Where no node has the label, Domain is empty.
	Topology string `json:"topology,omitempty"`
	Domain   string `json:"domain,omitempty"`
	// Fits of Min members fit, those that are bound included.
	Fits int `json:"fits"`
	Min  int `json:"min"`
	// Short is what the others request of what usable nodes lacked: resources, and devices by device class. It is empty
	// where no node is usable.
	Short     map[string]string `json:"short,omitempty"`
	Usability `json:",inline"`
}

// Usability is which nodes of a domain the members of a gang may use.
type Usability struct {
	// Nodes is how many nodes there are, and Unusable are those that no member may use, whatever is free there.
	Nodes    int        `json:"nodes,omitempty"`
	Unusable []Unusable `json:"unusable,omitempty"`
	// More nodes like the node Like, if they were empty, would take the members without a place; 0 where no usable node
	// would take them.
	More int    `json:"more,omitempty"`
	Like string `json:"like,omitempty"`
}

// Usable returns how many nodes members may use.
func (u *Usability) Usable() int {
	n := u.Nodes
	for _, of := range u.Unusable {
		n -= of.Nodes
	}
	return n
}

// Unusable is nodes that a filter other than those of resources keeps all members off, for one reason.
type Unusable struct {
	// Reason is the filter's, such as "node(s) were unschedulable".
	Reason string `json:"reason"`
	// Nodes is how many nodes they are, and Node the name of the only one.
	Nodes int    `json:"nodes"`
	Node  string `json:"node,omitempty"`
}

// String returns what users are told: the name of the node where it is one.
func (u Unusable) String() string {
	rest, known := strings.CutPrefix(u.Reason, "node(s) ")
	if u.Node == "" || !known {
		return fmt.Sprintf("%d %s", u.Nodes, u.Reason)
	}
	if state, plural := strings.CutPrefix(rest, "were "); plural {
		rest = "was " + state
	}
	return u.Node + " " + rest
}

// TextUnusable returns what users are told of unusable nodes, one text for each reason.
func TextUnusable(list []Unusable) []string {
	texts := make([]string, len(list))
	for i, of := range list {
		texts[i] = of.String()
	}
	return texts
}

// Domain is a part of the cluster that was searched for victims.
type Domain struct {
	Name string `json:"name"`
	// Round is that of the victims which may be evicted; empty where no pod may.
	Round string `json:"round,omitempty"`
	// Outcome is how far the search came there.
	Outcome string `json:"outcome"`
}

// Bundle is victims that are evicted together.
type Bundle struct {
	Gang string `json:"gang"`
	// Kind is Safe, where the gang keeps its minimum, or Whole.
	Kind string `json:"kind"`
	Pods int    `json:"pods"`
	// Gain, Cost and ROI are as in victim.Bundle.
	Gain float64 `json:"gain"`
	Cost float64 `json:"cost"`
	ROI  float64 `json:"roi"`
}

// Log remembers decisions. It is safe for concurrent use.
type Log struct {
	mu sync.Mutex
	// groups has the decisions of each group, in the order in which they were last made.
	groups map[string][]Decision
}

// New returns an empty Log.
func New() *Log { return &Log{groups: map[string][]Decision{}} }

// Add adds what was decided now for a group of a profile. It reports whether the decision is new: not one that is
// remembered for the group.
func (l *Log) Add(group string, now time.Time, d Decision) bool {
	if more := len(d.Domains) - Domains; more > 0 {
		d.Domains, d.Untried = slices.Clone(d.Domains[:Domains]), d.Untried+more
	}
	d.At, d.Last, d.Times = metav1.NewMicroTime(now), metav1.NewMicroTime(now), 1
	l.mu.Lock()
	defer l.mu.Unlock()
	key := d.Profile + "/" + group
	list, known := l.groups[key]
	if !known && len(l.groups) == Groups {
		l.forget()
	}
	if i := lastLike(list, d); i >= 0 {
		list[i].Last = d.Last
		list[i].Times++
		for ; i+1 < len(list); i++ {
			list[i], list[i+1] = list[i+1], list[i]
		}
		return false
	}
	if len(list) == PerGroup {
		list = slices.Delete(list, 0, 1)
	}
	l.groups[key] = append(list, d)
	return true
}

// forget removes the group for which nothing was decided for the longest time. It looks at each group, once for a group
// that is new.
func (l *Log) forget() {
	var oldest string
	var at time.Time
	for key, list := range l.groups {
		last := list[len(list)-1].Last.Time
		if oldest == "" || last.Before(at) {
			oldest, at = key, last
		}
	}
	delete(l.groups, oldest)
}

// lastLike finds an equal decision, from the last to the first: mostly it is the last.
func lastLike(list []Decision, d Decision) int {
	for i := len(list) - 1; i >= 0; i-- {
		if same(&list[i], &d) {
			return i
		}
	}
	return -1
}

// same reports whether two decisions differ in nothing but when they were made.
func same(a, b *Decision) bool {
	made := *b
	made.At, made.Last, made.Times = a.At, a.Last, a.Times
	return equality.Semantic.DeepEqual(*a, made)
}

// Of returns what was decided for a gang, in the order in which it was last decided. Its name is namespace/name.
func (l *Log) Of(gang string) []Decision {
	return slices.DeleteFunc(l.All(), func(d Decision) bool { return !slices.Contains(d.Gangs, gang) })
}

// All returns everything that is remembered, by profile and gangs, and for each in the order in which it was last
// decided.
func (l *Log) All() []Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Decision
	for _, list := range l.groups {
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b Decision) int {
		if order := strings.Compare(a.Profile, b.Profile); order != 0 {
			return order
		}
		if order := slices.Compare(a.Gangs, b.Gangs); order != 0 {
			return order
		}
		return a.Last.Compare(b.Last.Time)
	})
	return all
}

// List is a log as /configz of the scheduler shows it: what the log has at the time of the request.
type List struct {
	metav1.TypeMeta
	log *Log
}

var _ runtime.Object = &List{}

// NewList returns the List of a log.
func NewList(log *Log) *List {
	return &List{TypeMeta: metav1.TypeMeta{APIVersion: "debug.lockstep.dev/v1alpha1", Kind: "DecisionList"}, log: log}
}

// DeepCopyObject returns another view of the same log.
func (l *List) DeepCopyObject() runtime.Object { return &List{TypeMeta: l.TypeMeta, log: l.log} }

// MarshalJSON writes what the log has now.
func (l *List) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Items           []Decision `json:"items"`
	}{l.TypeMeta, l.log.All()})
}
