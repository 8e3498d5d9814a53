package config

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultMaxInFlight is the default of BoundedBinderArgs.MaxInFlight.
const DefaultMaxInFlight int32 = 48

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GangArgs are the arguments of the Gang plugin. See package v1 for defaults.
type GangArgs struct {
	metav1.TypeMeta

	// DefaultWaitTime is the wait time of NonStrict gangs that set none: the longest
	// time that members may be held while the minimum is not reached. Of Strict gangs
	// that set none it is the longest time of a round. More than 0.
	DefaultWaitTime metav1.Duration
	// InitialBackoff is the shortest time between a round that failed although there was a plan,
	// or that ran out of time, and the next; it doubles with every such failure in a row. More
	// than 0.
	InitialBackoff metav1.Duration
	// MaxBackoff bounds the backoff. Not below InitialBackoff.
	MaxBackoff metav1.Duration
	// ExplanationQPS bounds the writes per second of why gangs wait, to PodGroups, and to pending
	// members where only the words have changed. A new reason is written to all members at once,
	// 300 of a process in a second. 1 to 1000.
	ExplanationQPS int32
	// TopologyLevels are the levels of the cluster's topology, coarsest first, at most 8.
	TopologyLevels []TopologyLevel
	// FillDomains: gangs that ask for no topology fill the domains of TopologyLevels one after
	// the other, the fullest first.
	FillDomains bool
	// ProvisioningClassName is the class of the ProvisioningRequests by which nodes are asked for where only the required
	// topology keeps a gang waiting. Empty for none.
	ProvisioningClassName string
}

// TopologyLevel is a level of the cluster's topology.
type TopologyLevel struct {
	// Key is the node label whose values are the domains of the level.
	Key string
	// Name is what the level is called in Koordinator's network-topology-spec.
	Name string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BoundedBinderArgs are the arguments of the BoundedBinder plugin. See package
// v1 for defaults.
type BoundedBinderArgs struct {
	metav1.TypeMeta

	// MaxInFlight is the number of Binding calls that may be under way at once,
	// over all profiles of the process. 1 to 10000.
	MaxInFlight int32
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ReservationArgs are the arguments of the Reservation plugin. See package v1 for
// defaults.
type ReservationArgs struct {
	metav1.TypeMeta

	// Preempt: pods of lower priority may be evicted to make room for Reservations, as
	// the priority of their templates allows.
	Preempt bool
	// Preemptable: what Reservations hold makes way for pods of a higher priority than
	// that of their templates, if these would not fit otherwise.
	Preemptable bool
}

// MaxEvictionCooldown bounds GangPreemptionArgs.EvictionCooldown: evictions are remembered
// for that long.
const MaxEvictionCooldown = 24 * time.Hour

// DefaultEvictedHold is the default of FairShareArgs.EvictedHold, the longest pause of the Job controller, and
// MaxEvictedHold bounds it.
const (
	DefaultEvictedHold = 10 * time.Minute
	MaxEvictedHold     = 24 * time.Hour
)

// MinSearchTimeout and MaxSearchTimeout bound GangPreemptionArgs.SearchTimeout: no search ends in
// less, and no scheduler may stand still for longer.
const (
	MinSearchTimeout = 10 * time.Millisecond
	MaxSearchTimeout = time.Minute
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GangPreemptionArgs are the arguments of the GangPreemption plugin. See package
// v1 for defaults.
type GangPreemptionArgs struct {
	metav1.TypeMeta

	// MinCandidateNodesPercentage and MinCandidateNodesAbsolute are how many nodes a search
	// for victims looks at first where no topology is required, cheapest first: the
	// percentage of all nodes, and not fewer than the absolute number. Where these do not
	// suffice it looks at twice as many, and so on. 0 to 100, and 0 or more.
	MinCandidateNodesPercentage int32
	MinCandidateNodesAbsolute   int32
	// MaxCandidateNodesAbsolute bounds how many nodes a search looks at in the end. 0 for
	// all, else not below MinCandidateNodesAbsolute.
	MaxCandidateNodesAbsolute int32
	// Workers is how many nodes are filtered at once. 1 to 1000.
	Workers int32
	// MaxDomains is how many domains of a topology are tried, those that cost least to
	// enter first. 1 to 1000.
	MaxDomains int32
	// ROIThresholdPercent is the difference in return on investment, in hundredths, by
	// which two gangs count as equally good victims. 0 to 100.
	ROIThresholdPercent int32
	// EvictBrokenGangs: what is left of a gang that was below its minimum already when it loses
	// pods is evicted, too.
	EvictBrokenGangs bool
	// BrokenGrace is how long a gang has to have been below its minimum to count as broken.
	// Until then it is in repair: a member is being replaced. 0 or more.
	BrokenGrace metav1.Duration
	// MinRuntime is how long nothing of a gang is evicted from when its minimum is on its way,
	// nor a pod in no gang. A Queue may say otherwise for its gangs. 0 or more.
	MinRuntime metav1.Duration
	// EvictionCooldown is how long nothing more of a gang is evicted after pods of it were.
	// 0 to 24h.
	EvictionCooldown metav1.Duration
	// SearchTimeout is how long a search for victims may keep the scheduling thread, not counting its passes
	// over all pods. Then it ends with the victims that it has found, if these suffice, or without any. After one
	// without any, the next one of the same preemptor may take twice as long, up to 10s. 10ms to 1m.
	SearchTimeout metav1.Duration
	// EvictBy is how gangs are evicted as a whole that do not say it, nor their namespace: Delete, or
	// Suspend for those of a Job.
	EvictBy string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// FairShareArgs are the arguments of the FairShare plugin. See package v1 for defaults.
type FairShareArgs struct {
	metav1.TypeMeta

	// Window is how many gangs, and pods in no gang, may be in the scheduler's active queue at
	// once: enough to keep it busy, and few enough for the order of queues to hold. All profiles
	// of a process need the same value. 1 to 10000.
	Window int32
	// MaxBypass is how many later gangs, and pods in no gang, may be placed before one that does
	// not fit; then later ones that ask for any of what it asks for wait for it. 0 to 1000000, 0
	// for any number.
	MaxBypass int32
	// BypassHold is how long later ones wait for it at most. Then MaxBypass may be placed before
	// it again. Both double each time. More than 0.
	BypassHold metav1.Duration
	// EvictedHold is how long what a gang had when it was evicted counts as asked for in its queue, while its pods are
	// made again. All profiles of a process need the same value. 0, for not at all, to 24h.
	EvictedHold metav1.Duration
	// Tiers are the policies by which queues and jobs are ordered, and victims are chosen.
	Tiers []PolicyTier
	// ExplanationQPS bounds the writes per second that only change the words in which pods say why
	// they wait for their queue. A new reason is written at once. 1 to 1000.
	ExplanationQPS int32
	// Pools are kinds of nodes of which queues have separate shares. All profiles of a process
	// need the same list.
	Pools []Pool
	// DeviceClasses are the resources that the devices of a DeviceClass count as in queues, by the name of the class.
	// Classes that are not named count as their extended resource, else as the one that Kubernetes derives from their
	// name. All profiles of a process need the same.
	DeviceClasses map[string]corev1.ResourceName
}

// Pool is nodes that are alike: what they have is shared separately. A node is in the first
// pool whose selector matches it, and in the pool "default" if none does.
type Pool struct {
	// Name is unique, a DNS label and not "default".
	Name string
	// NodeSelector matches the labels of nodes. An empty one matches all; no pool may come
	// after it.
	NodeSelector *metav1.LabelSelector
	// Tolerations are those of the pods that the pool is for. A node with a NoSchedule
	// or NoExecute taint that none of them tolerates is not there to be shared. Empty: a node
	// with a taint that no pod that waits or runs tolerates is not.
	Tolerations []corev1.Toleration
}
