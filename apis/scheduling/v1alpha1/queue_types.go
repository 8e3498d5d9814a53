package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueueResource is the resource name of Queue.
var QueueResource = SchemeGroupVersion.WithResource("queues")

// DefaultQueue is the queue of pods that name none. It exists without being created.
const DefaultQueue = "default"

// DefaultPool is the pool of the nodes that are in no other.
const DefaultPool = "default"

// Types and reasons of a Queue's conditions.
const (
	// QueueReady is the condition that a queue serves pods.
	QueueReady = "Ready"
	// QueueReasonServing goes with QueueReady when it is true.
	QueueReasonServing = "Serving"
	// QueueReasonUnknownResource goes with it, too: the queue states an amount of a resource that no node has.
	QueueReasonUnknownResource = "UnknownResource"
	// QueueReasonClosed: spec.closed is true.
	QueueReasonClosed = "Closed"
	// QueueReasonInvalid: an amount that the queue, or one above it, states cannot be.
	QueueReasonInvalid = "InvalidAmount"
	// QueueReasonNoParent: a parent, its own or one of an ancestor, does not exist.
	QueueReasonNoParent = "ParentNotFound"
	// QueueReasonCycle: the queue is an ancestor of itself.
	QueueReasonCycle = "ParentCycle"
	// QueueReasonTooDeep: there are more than 16 levels of queues from it up to the top.
	QueueReasonTooDeep = "TooDeep"
)

// Queue is a part of the cluster's capacity that a team shares in.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="Weight",type=integer,JSONPath=`.spec.weight`
// +kubebuilder:printcolumn:name="Share",type=string,JSONPath=`.status.share`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.runningGangs`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pendingGangs`
// +kubebuilder:printcolumn:name="Closed",type=boolean,JSONPath=`.spec.closed`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it serves pods, or does not."
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
// +kubebuilder:printcolumn:name="Stated",type=string,JSONPath=`.spec.deserved`,description="What it is entitled to, as its spec states it.",priority=1
// +kubebuilder:printcolumn:name="Due",type=string,JSONPath=`.status.deserved`,description="What it is entitled to as things are, and never more than it requests.",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",message="spec.parent: a queue cannot be its own parent"
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec QueueSpec `json:"spec,omitempty"`
	// +optional
	Status QueueStatus `json:"status,omitempty"`
}

// QueueSpec is what a queue is entitled to.
//
// +kubebuilder:validation:XValidation:rule="!has(self.guarantee) || !has(self.deserved) || self.guarantee.all(r, !(r in self.deserved) || quantity(string(self.guarantee[r])).compareTo(quantity(string(self.deserved[r]))) <= 0)",message="guarantee: must not exceed deserved, in any resource"
// +kubebuilder:validation:XValidation:rule="!has(self.guarantee) || !has(self.capability) || self.guarantee.all(r, !(r in self.capability) || quantity(string(self.guarantee[r])).compareTo(quantity(string(self.capability[r]))) <= 0)",message="guarantee: must not exceed capability, in any resource"
// +kubebuilder:validation:XValidation:rule="!has(self.deserved) || !has(self.capability) || self.deserved.all(r, !(r in self.capability) || quantity(string(self.deserved[r])).compareTo(quantity(string(self.capability[r]))) <= 0)",message="deserved: must not exceed capability, in any resource"
type QueueSpec struct {
	// Parent is the queue of which this one has a share; without, it has a share of the
	// cluster. The ceilings of all ancestors hold. There are at most 16 levels of queues: one
	// that is deeper serves no pods.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Parent string `json:"parent,omitempty"`
	// Weight is the queue's part of what it shares with its siblings. From 1 to 1000000.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Weight int32 `json:"weight,omitempty"`
	// Priority is the order in which siblings are served, whatever the shares: high before
	// low.
	//
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`
	// Deserved is what the queue is entitled to, of each resource that is named here. Of
	// the others it deserves a part by weight. Where the scheduler is configured with pools of
	// nodes, this, guarantee and capability hold in the pool "default"; for others see pools.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="amounts must not be negative"
	Deserved v1.ResourceList `json:"deserved,omitempty"`
	// Guarantee is what the queue has before anything is shared by weight. It is lent
	// while it is not used.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="amounts must not be negative"
	Guarantee v1.ResourceList `json:"guarantee,omitempty"`
	// Capability is the most that the queue and all below it may use, of each resource
	// that is named here. Of the others there is no limit.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="amounts must not be negative"
	Capability v1.ResourceList `json:"capability,omitempty"`
	// Pools are what the queue is entitled to in other pools of nodes than "default", pool by
	// pool. Of a pool that is not named here the queue deserves a part by weight, without a
	// limit.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Pools []QueuePool `json:"pools,omitempty"`
	// Reclaimable is whether others may take back what the queue, and those below it, use
	// beyond what they deserve, by eviction.
	//
	// +optional
	// +kubebuilder:default=true
	Reclaimable *bool `json:"reclaimable,omitempty"`
	// MinRuntime is how long nothing of a gang in the queue, and in queues below it that set no
	// other, is evicted from when its minimum is on its way to its nodes, neither for others of
	// the queue nor to give back what the queue has beyond its share. Without, the configuration
	// of the scheduler holds (GangPreemptionArgs).
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|(([0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,7}([.][0-9]{1,9})?m|[0-9]{1,9}([.][0-9]{1,9})?s|[0-9]{1,12}([.][0-9]{1,9})?ms)){1,4})$') && duration(self) <= duration('87600h')",messageExpression="'minRuntime: \"' + self + '\" is no duration from 0s to 87600h: write it like 90s, 10m or 1h30m'",message="minRuntime: must be a duration from 0s to 87600h: write it like 90s, 10m or 1h30m"
	MinRuntime *metav1.Duration `json:"minRuntime,omitempty"`
	// Closed: nothing more is admitted to the queue and those below it. Pods that run are
	// left alone, and jobs for which pods are being evicted already start.
	//
	// +optional
	Closed bool `json:"closed,omitempty"`
}

// QueuePool is what a queue is entitled to in a pool of nodes. Where amounts of a resource
// contradict each other, guarantee holds before deserved, and capability before both; the
// condition Ready says so. (Rules that compare all of them are more than an API server allows.)
//
// +kubebuilder:validation:XValidation:rule="self.name != 'default'",message="name: what holds in the pool default is said by deserved, guarantee and capability of the queue"
type QueuePool struct {
	// Name is that of a pool in the scheduler's configuration (FairShareArgs).
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Deserved is as in the queue's spec.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="amounts must not be negative"
	Deserved v1.ResourceList `json:"deserved,omitempty"`
	// Guarantee is as in the queue's spec.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="amounts must not be negative"
	Guarantee v1.ResourceList `json:"guarantee,omitempty"`
	// Capability is as in the queue's spec.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=7
	// +kubebuilder:validation:XValidation:rule="self.all(r, type(self[r]) == int ? self[r] >= 0 : !self[r].startsWith('-'))",message="amounts must not be negative"
	Capability v1.ResourceList `json:"capability,omitempty"`
}

// QueueStatus is what a queue has. Amounts are sums over all pools of nodes.
type QueueStatus struct {
	// Deserved is what the queue is entitled to as things are: never more than it
	// requests.
	//
	// +optional
	Deserved v1.ResourceList `json:"deserved,omitempty"`
	// Allocated is what its pods use, including those of the queues below it.
	//
	// +optional
	Allocated v1.ResourceList `json:"allocated,omitempty"`
	// Requested is what its pods ask for, those that wait and those that run, including
	// those of the queues below it.
	//
	// +optional
	Requested v1.ResourceList `json:"requested,omitempty"`
	// Share is the largest of the parts of the cluster's resources that the queue uses,
	// in percent: "12.5%".
	//
	// +optional
	Share string `json:"share,omitempty"`
	// Pools are the same amounts pool by pool, of those in which the queue has or requests
	// anything. Empty where there is no pool but "default".
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []QueuePoolStatus `json:"pools,omitempty"`
	// PendingGangs is how many gangs wait, where a pod in no gang counts as one.
	//
	// +optional
	PendingGangs int32 `json:"pendingGangs"`
	// RunningGangs is how many gangs have pods on nodes, where a pod in no gang counts as
	// one.
	//
	// +optional
	RunningGangs int32 `json:"runningGangs"`
	// Conditions say whether the queue serves pods, and why not.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// QueuePoolStatus is what a queue has in a pool of nodes.
type QueuePoolStatus struct {
	// Name is that of the pool.
	Name string `json:"name"`
	// Deserved, Allocated and Requested are as in the queue's status. What pods that wait ask
	// for is requested in the first pool that they may use.
	//
	// +optional
	Deserved v1.ResourceList `json:"deserved,omitempty"`
	// +optional
	Allocated v1.ResourceList `json:"allocated,omitempty"`
	// +optional
	Requested v1.ResourceList `json:"requested,omitempty"`
}

// QueueList is a list of queues.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Queue `json:"items"`
}
