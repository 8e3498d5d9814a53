package scenario

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Expect waits until everything in it holds at the same time.
type Expect struct {
	// Within is how long that may take. Default: 30s.
	Within metav1.Duration `json:"within,omitzero"`

	// Bound is the number of bound members by gang (name with * and ?; each must have it).
	Bound map[string]Count `json:"bound,omitempty"`
	// Whole is the number of gangs, among those that match, that have their minimum bound. The others
	// must have nothing bound.
	Whole map[string]Count `json:"whole,omitempty"`

	Pods       []PodsExpect      `json:"pods,omitempty"`
	Placement  []PlacementExpect `json:"placement,omitempty"`
	Events     []EventExpect     `json:"events,omitempty"`
	Objects    []ObjectExpect    `json:"objects,omitempty"`
	Writes     []WritesExpect    `json:"writes,omitempty"`
	BoundOrder []OrderExpect     `json:"boundOrder,omitempty"`
	// Evictions is the number of pods, by name with * and ?, that others than the scenario deleted
	// since it began.
	Evictions map[string]Count `json:"evictions,omitempty"`
	// NeverBound: none of these was bound at any moment since the scenario began.
	NeverBound []string `json:"neverBound,omitempty"`
	// SameNodesAsStock: these are where the stock scheduler puts them. The scenario is first run with
	// it, expectations left out.
	SameNodesAsStock []string `json:"sameNodesAsStock,omitempty"`
	// Elapsed bounds the time until everything held.
	Elapsed *ElapsedExpect `json:"elapsed,omitempty"`

	// StableFor runs on for so many scheduling rounds once everything holds, and nothing may change.
	StableFor int `json:"stableFor,omitempty"`
	// RoundEvery is the least length of a round. Default: 400ms.
	RoundEvery metav1.Duration `json:"roundEvery,omitzero"`
	// Settle is how long nothing may have changed before the rounds count; if it is longer than the
	// default, then also after a first round. Default: 2s.
	Settle metav1.Duration `json:"settle,omitzero"`
}

// PodsExpect is about pods; without exist there must be at least one. Its conditions, phases, nodes,
// annotations and labels must be true of each.
type PodsExpect struct {
	Pods []string `json:"pods"`
	// Exist and Bound count them.
	Exist *Count `json:"exist,omitempty"`
	Bound *Count `json:"bound,omitempty"`
	// Matching counts the pods of which that is true, which need not be all then.
	Matching *Count `json:"matching,omitempty"`
	// Nodes are names with * and ?: each is on one of them. Nominated likewise.
	Nodes     []string `json:"nodes,omitempty"`
	Nominated []string `json:"nominated,omitempty"`
	Phase     string   `json:"phase,omitempty"`
	// Reason and Message: each is pending with PodScheduled False and these.
	Reason  *Pattern `json:"reason,omitempty"`
	Message *Pattern `json:"message,omitempty"`
	// Conditions are further ones.
	Conditions []ConditionExpect `json:"conditions,omitempty"`

	Annotations        map[string]Pattern `json:"annotations,omitempty"`
	WithoutAnnotations []string           `json:"withoutAnnotations,omitempty"`
	Labels             map[string]Pattern `json:"labels,omitempty"`
}

// ConditionExpect is about a condition that has to be there.
type ConditionExpect struct {
	Type    string   `json:"type"`
	Status  string   `json:"status,omitempty"`
	Reason  *Pattern `json:"reason,omitempty"`
	Message *Pattern `json:"message,omitempty"`
}

// PlacementExpect is about where bound pods are, by a label of their nodes.
type PlacementExpect struct {
	// Pods, or all members of Gang.
	Pods []string `json:"pods,omitempty"`
	Gang string   `json:"gang,omitempty"`
	// Label is a node label. Default: kubernetes.io/hostname.
	Label string `json:"label,omitempty"`
	// Domains is the number of different values; In has those allowed.
	Domains *Count   `json:"domains,omitempty"`
	In      []string `json:"in,omitempty"`
	// PerDomain is the number of pods in each domain that has any; Counts that in one by its value.
	PerDomain *Count           `json:"perDomain,omitempty"`
	Counts    map[string]Count `json:"counts,omitempty"`
}

// EventExpect is about events since the scenario began.
type EventExpect struct {
	// Kind is the kind of the object: Pod, PodGroup ... Default: Pod.
	Kind string `json:"kind,omitempty"`
	// Name has * and ? in it.
	Name    string   `json:"name"`
	Type    string   `json:"type,omitempty"`
	Reason  *Pattern `json:"reason,omitempty"`
	Message *Pattern `json:"message,omitempty"`
	// Count is how many different events there are. Default: ">=1".
	Count *Count `json:"count,omitempty"`
}

// ObjectExpect is about any object, read from the API server.
type ObjectExpect struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name may have * and ? in it: there has to be one object of such a name.
	Name string `json:"name"`
	// Cluster: it has no namespace.
	Cluster bool `json:"cluster,omitempty"`
	Absent  bool `json:"absent,omitempty"`
	// Fields by JSONPath without braces: .status.conditions[?(@.type=="Scheduled")].reason
	Fields map[string]Pattern `json:"fields,omitempty"`
}

// WritesExpect counts requests in the audit log of the API server that were made by the scheduler.
type WritesExpect struct {
	// Resource, such as pods/binding, pods/status, events, podgroups/status. Default: all but leases.
	Resource string `json:"resource,omitempty"`
	Verb     string `json:"verb,omitempty"`
	// Name of the object, with * and ?.
	Name string `json:"name,omitempty"`
	// Refused counts those answered with an error only; otherwise all are counted.
	Refused bool `json:"refused,omitempty"`
	// Since names a step. Default: the begin of the scenario.
	Since string `json:"since,omitempty"`
	Count Count  `json:"count"`
}

// OrderExpect: all of First were bound before any of Then.
type OrderExpect struct {
	First []string `json:"first"`
	Then  []string `json:"then"`
}

// ElapsedExpect bounds a time.
type ElapsedExpect struct {
	// Since names a step; time counts from its begin. Default: the last step that is no expectation.
	Since   string          `json:"since,omitempty"`
	AtLeast metav1.Duration `json:"atLeast,omitzero"`
	AtMost  metav1.Duration `json:"atMost,omitzero"`
}
