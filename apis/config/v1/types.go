package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GangArgs are the arguments of the Gang plugin.
type GangArgs struct {
	metav1.TypeMeta `json:",inline"`

	// DefaultWaitTime is the wait time of NonStrict gangs that set none: the longest
	// time that members may be held while the minimum is not reached. Of Strict gangs
	// that set none it is the longest time of a round. More than 0.
	// Default: 10m.
	DefaultWaitTime *metav1.Duration `json:"defaultWaitTime,omitempty"`
	// InitialBackoff is the shortest time between a round that failed although there was a
	// plan, or that ran out of time, and the next; it doubles with every such failure in a row.
	// More than 0. Default: 250ms.
	InitialBackoff *metav1.Duration `json:"initialBackoff,omitempty"`
	// MaxBackoff bounds the backoff. Not below InitialBackoff. Default: 1s.
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
	// ExplanationQPS bounds the writes per second of why gangs wait, to PodGroups, and to pending
	// members where only the words have changed. A new reason is written to all members at once,
	// 300 of a process in a second. 1 to 1000. Default: 10.
	ExplanationQPS *int32 `json:"explanationQPS,omitempty"`
	// TopologyLevels are the levels of the cluster's topology, coarsest first, at most 8: gangs
	// are laid out by them, so that members with consecutive ranks are near each other.
	// Default: none.
	TopologyLevels []TopologyLevel `json:"topologyLevels,omitempty"`
	// FillDomains: gangs that ask for no topology fill the domains of TopologyLevels one after
	// the other, the fullest first, so that small gangs do not take a bite out of every empty
	// one. If false, the Score plugins decide alone. Default: true.
	FillDomains *bool `json:"fillDomains,omitempty"`
	// ProvisioningClassName is the provisioning class of the ProvisioningRequests by which Cluster Autoscaler is asked for
	// nodes where only the required topology keeps a gang waiting:
	// best-effort-atomic-scale-up.autoscaling.x-k8s.io. Empty: no nodes are asked for. Default: empty.
	ProvisioningClassName string `json:"provisioningClassName,omitempty"`
}

// TopologyLevel is a level of the cluster's topology.
type TopologyLevel struct {
	// Key is the node label whose values are the domains of the level. Nodes without it are in
	// none.
	Key string `json:"key"`
	// Name is what the level is called in Koordinator's annotation
	// gang.scheduling.koordinator.sh/network-topology-spec, which may use the key, too.
	// Default: none.
	Name string `json:"name,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BoundedBinderArgs are the arguments of the BoundedBinder plugin.
type BoundedBinderArgs struct {
	metav1.TypeMeta `json:",inline"`

	// MaxInFlight is the number of Binding calls that may be under way at once,
	// over all profiles of the process. 1 to 10000. Default: 48.
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ReservationArgs are the arguments of the Reservation plugin.
type ReservationArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Preempt: pods of lower priority may be evicted to make room for Reservations, as
	// the priority of their templates allows. If false, a Reservation waits until there
	// is room. Default: false.
	Preempt *bool `json:"preempt,omitempty"`
	// Preemptable: what Reservations hold makes way for pods of a higher priority than
	// that of their templates, if these would not fit otherwise; other places are sought for
	// them then. If false, it is kept for their owners alone. Default: false.
	Preemptable *bool `json:"preemptable,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GangPreemptionArgs are the arguments of the GangPreemption plugin.
type GangPreemptionArgs struct {
	metav1.TypeMeta `json:",inline"`

	// MinCandidateNodesPercentage and MinCandidateNodesAbsolute are how many nodes a search
	// for victims looks at first where no topology is required, cheapest first: the
	// percentage of all nodes, and not fewer than the absolute number. Where these do not
	// suffice it looks at twice as many, and so on. 0 to 100, and 0 or more. Default: 100 and 100.
	MinCandidateNodesPercentage *int32 `json:"minCandidateNodesPercentage,omitempty"`
	MinCandidateNodesAbsolute   *int32 `json:"minCandidateNodesAbsolute,omitempty"`
	// MaxCandidateNodesAbsolute bounds how many nodes a search looks at in the end. 0 for
	// all, else not below MinCandidateNodesAbsolute. Default: 0.
	MaxCandidateNodesAbsolute *int32 `json:"maxCandidateNodesAbsolute,omitempty"`
	// Workers is how many nodes are filtered at once. 1 to 1000. Default: 16.
	Workers *int32 `json:"workers,omitempty"`
	// MaxDomains is how many domains of a topology are tried, those that cost least to
	// enter first. 1 to 1000. Default: 5.
	MaxDomains *int32 `json:"maxDomains,omitempty"`
	// ROIThresholdPercent is the difference in return on investment, in hundredths, by
	// which two gangs count as equally good victims. 0 to 100. Default: 5.
	ROIThresholdPercent *int32 `json:"roiThresholdPercent,omitempty"`
	// EvictBrokenGangs: what is left of a gang that was below its minimum already when it loses
	// pods is evicted, too. Default: true.
	EvictBrokenGangs *bool `json:"evictBrokenGangs,omitempty"`
	// BrokenGrace is how long a gang has to have been below its minimum to count as broken.
	// Until then it is in repair: a member is being replaced. 0 or more. Default: 1m.
	BrokenGrace *metav1.Duration `json:"brokenGrace,omitempty"`
	// MinRuntime is how long nothing of a gang is evicted from when its minimum is on its way, nor
	// a pod in no gang. A Queue may say otherwise for its gangs (spec.minRuntime). 0 or more.
	// Default 0.
	MinRuntime *metav1.Duration `json:"minRuntime,omitempty"`
	// EvictionCooldown is how long nothing more of a gang is evicted after pods of it were.
	// 0 to 24h. Default 0.
	EvictionCooldown *metav1.Duration `json:"evictionCooldown,omitempty"`
	// SearchTimeout is how long a search for victims may keep the scheduling thread, not counting its passes
	// over all pods. Then it ends with the victims that it has found, if these suffice, or without any. After one
	// without any, the next one of the same preemptor may take twice as long, up to 10s. 10ms to 1m. Default: 1s.
	SearchTimeout *metav1.Duration `json:"searchTimeout,omitempty"`
	// EvictBy is how gangs are evicted as a whole that do not say it, nor their namespace, by the annotation
	// scheduling.lockstep.dev/evict-by: Delete, or Suspend for those of a Job. Default: Delete.
	EvictBy string `json:"evictBy,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// FairShareArgs are the arguments of the FairShare plugin.
type FairShareArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Window is how many gangs, and pods in no gang, may be in the scheduler's active queue at
	// once: enough to keep it busy, and few enough for the order of queues to hold. All profiles
	// of a process need the same value. 1 to 10000. Default: 256.
	Window *int32 `json:"window,omitempty"`
	// MaxBypass is how many later gangs, and pods in no gang, may be placed before one that does
	// not fit; then later ones that ask for any of what it asks for wait for it. 0 to 1000000, 0
	// for any number. Default: 100.
	MaxBypass *int32 `json:"maxBypass,omitempty"`
	// BypassHold is how long later ones wait for it at most. Then MaxBypass may be placed before
	// it again. Both double each time. More than 0. Default: 1m.
	BypassHold *metav1.Duration `json:"bypassHold,omitempty"`
	// EvictedHold is how long what a gang had when it was evicted counts as asked for in its queue, while its pods are
	// made again. All profiles of a process need the same value. 0, for not at all, to 24h. Default: 10m.
	EvictedHold *metav1.Duration `json:"evictedHold,omitempty"`
	// Tiers are the policies by which queues and jobs are ordered, and victims are chosen.
	// Default: one tier of priority, gang, conformance, proportion, capacity, and of drf for
	// JobOrder only.
	Tiers []PolicyTier `json:"tiers,omitempty"`
	// ExplanationQPS bounds the writes per second that only change the words in which pods say why
	// they wait for their queue. A new reason is written at once. 1 to 1000. Default: 10.
	ExplanationQPS *int32 `json:"explanationQPS,omitempty"`
	// Pools are kinds of nodes of which queues have separate shares. All profiles of a process
	// need the same list. Default: none; all nodes are in the pool "default".
	Pools []Pool `json:"pools,omitempty"`
	// DeviceClasses are the resources that the devices of a DeviceClass count as in queues, by the name of the class:
	// gpu.nvidia.com: nvidia.com/gpu. Several classes may count as one resource. All profiles of a process need the same.
	// Default: none; a class counts as its extendedResourceName, else as deviceclass.resource.kubernetes.io/CLASS.
	DeviceClasses map[string]corev1.ResourceName `json:"deviceClasses,omitempty"`
}

// Pool is nodes that are alike: what they have is shared separately. A node is in the first
// pool whose selector matches it, and in the pool "default" if none does.
type Pool struct {
	// Name is unique, a DNS label and not "default".
	Name string `json:"name"`
	// NodeSelector matches the labels of nodes. An empty one matches all; no pool may come
	// after it.
	NodeSelector *metav1.LabelSelector `json:"nodeSelector"`
	// Tolerations are those of the pods that the pool is for. A node with a NoSchedule
	// or NoExecute taint that none of them tolerates is not there to be shared. Default: a node
	// with a taint that no pod that waits or runs tolerates is not.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// PolicyTier is policies that answer together. In orders the first policy that ranks two
// differently decides, tier by tier. A pod may be evicted if all policies of the tier that
// answer permit it; the next tier is asked only where this one finds no pod.
type PolicyTier struct {
	Policies []Policy `json:"policies"`
}

// Policy is a policy in a tier.
type Policy struct {
	// Name is capacity, conformance, drf, gang, priority or proportion.
	Name string `json:"name"`
	// Answers are the questions that it answers here: QueueOrder, JobOrder, TaskOrder,
	// Overused, Preemptable, Reclaimable. Default: all that it can.
	Answers []string `json:"answers,omitempty"`
}
