package v1alpha1

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ReservationResource is the resource name of Reservation.
var ReservationResource = SchemeGroupVersion.WithResource("reservations")

// Keys of reservations.
const (
	// ReservationAnnotation is the name of the Reservation that a pod uses, or else waits for: the pod
	// goes there or nowhere (annotation on the pod, which has to be one of its owners).
	ReservationAnnotation = "scheduling.lockstep.dev/reservation"
	// ReservationAllocatedAnnotation is written by the scheduler before it binds a pod: which placement
	// of which Reservation the pod uses, as JSON (annotation on the pod):
	// {"name":"tonight","uid":"...","index":3}.
	ReservationAllocatedAnnotation = "scheduling.lockstep.dev/reservation-allocated"
	// ReservationMarksAnnotation is written by the controller on nodes that it marks against scale-down:
	// the keys of the annotations that it has set, by comma. It removes these and no others.
	ReservationMarksAnnotation = "scheduling.lockstep.dev/reservation-marks"
)

// ReservationPhase is how far a Reservation has come.
type ReservationPhase string

const (
	// ReservationPending: not all of its placements have been found, or some were lost.
	ReservationPending ReservationPhase = "Pending"
	// ReservationAvailable: all that it asks for is held for its owners.
	ReservationAvailable ReservationPhase = "Available"
	// ReservationSucceeded: every placement was used once, and that was all. Final.
	ReservationSucceeded ReservationPhase = "Succeeded"
	// ReservationFailed: it has expired, or is being deleted. It no longer holds anything. Final.
	ReservationFailed ReservationPhase = "Failed"
)

// AllocatePolicy is how an owner may use what is reserved.
type AllocatePolicy string

const (
	// AllocateAligned: an owner that asks for more than is reserved takes the rest from what is free
	// on the node.
	AllocateAligned AllocatePolicy = "Aligned"
	// AllocateRestricted: an owner gets no more than is reserved, of the resources that are.
	AllocateRestricted AllocatePolicy = "Restricted"
)

// Types and reasons of a Reservation's conditions.
const (
	// ReservationScheduled is the condition that all placements have been found. Only the scheduler
	// writes it.
	ReservationScheduled = "Scheduled"
	// ReservationReasonScheduled goes with ReservationScheduled when it is true.
	ReservationReasonScheduled = "Scheduled"
	// ReservationReasonUnschedulable: it was tried and does not fit.
	ReservationReasonUnschedulable = "Unschedulable"
	// ReservationReasonPreempted: placements were preempted by pods of higher priority; they are scheduled again.
	ReservationReasonPreempted = "Preempted"
	// ReservationReasonWaitingForStartTime: spec.startTime is yet to come.
	ReservationReasonWaitingForStartTime = "WaitingForStartTime"

	// ReservationReady is the condition that owners find all that they were promised. Only the
	// controller writes it.
	ReservationReady = "Ready"
	// ReservationReasonAvailable goes with ReservationReady when it is true.
	ReservationReasonAvailable = "Available"
	// ReservationReasonPending: there are no placements yet.
	ReservationReasonPending = "Pending"
	// ReservationReasonNodeLost: nodes of placements are gone; the placements are scheduled again.
	ReservationReasonNodeLost = "NodeLost"
	// ReservationReasonSucceeded: every placement was used once.
	ReservationReasonSucceeded = "Succeeded"
	// ReservationReasonExpired: spec.ttl or spec.expires has run out.
	ReservationReasonExpired = "Expired"
	// ReservationReasonDeleted: it is being deleted, and waits for finalizers.
	ReservationReasonDeleted = "Deleted"
)

// Reservation is capacity that is held for pods that are yet to come.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rsv
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.ownerCount`,description="Pods that use it."
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.allocatable.cpu`
// +kubebuilder:printcolumn:name="Mem",type=string,JSONPath=`.status.allocatable.memory`
// +kubebuilder:printcolumn:name="GPU",type=string,JSONPath=`.status.allocatable['nvidia\.com/gpu']`
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="Scheduled")].reason`,priority=1
type Reservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ReservationSpec `json:"spec"`
	// +optional
	Status ReservationStatus `json:"status,omitempty"`
}

// ReservationSpec is what is held, for which pods and for how long. Only owners, ttl and expires can
// be changed.
//
// +kubebuilder:validation:XValidation:rule="has(self.startTime) == has(oldSelf.startTime) && (!has(self.startTime) || self.startTime == oldSelf.startTime)",fieldPath=".startTime",message="startTime: cannot be changed: make another Reservation with what you want"
// +kubebuilder:validation:XValidation:rule="has(self.nodeNames) == has(oldSelf.nodeNames) && (!has(self.nodeNames) || self.nodeNames == oldSelf.nodeNames)",fieldPath=".nodeNames",message="nodeNames: cannot be changed: make another Reservation with what you want"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeNames) || size(self.nodeNames) == (has(self.replicas) ? self.replicas : 1)",fieldPath=".nodeNames",message="nodeNames: must name as many nodes as there are replicas: name one for each, the same one several times if need be"
// +kubebuilder:validation:XValidation:rule="!has(self.expires) || !has(self.startTime) || self.expires > self.startTime",fieldPath=".expires",message="expires: is not after startTime: nothing would ever be held: set it later, or leave it out"
type ReservationSpec struct {
	// Template is the pod for which a place is sought, and whose requests are held: it goes through
	// scheduling with all that it says, and is never created. metadata.namespace is the namespace that
	// it is in for quotas of queues, and for selectors of affinity; default if unset. Its name and its
	// containers' commands mean nothing. Annotations for topology on it or on the Reservation are those
	// of the gang that several replicas are. Cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="template: cannot be changed: make another Reservation with what you want"
	// +kubebuilder:validation:XValidation:rule="has(self.spec) && size(self.spec.containers) > 0",fieldPath=".spec.containers",message="template.spec.containers: is empty: name one container with the resources.requests that are to be held"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.nodeName)",fieldPath=".spec.nodeName",message="template.spec.nodeName: must not be set, the scheduler chooses: narrow its choice with nodeSelector or affinity"
	// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.schedulingGates) || size(self.spec.schedulingGates) == 0",fieldPath=".spec.schedulingGates",message="template.spec.schedulingGates: must not be set, since nothing would remove them: set spec.startTime to begin later"
	// +kubebuilder:validation:XValidation:rule="!has(self.metadata) || !has(self.metadata.__namespace__) || !format.dns1123Label().validate(self.metadata.__namespace__).hasValue()",fieldPath=".metadata.namespace",message="template.metadata.namespace: is the name of no namespace: correct it, or leave it out for default"
	Template v1.PodTemplateSpec `json:"template"`
	// Owners are the pods that may use what is held: those to which one of the entries applies. From 1
	// to 16. May be changed; a pod that uses it already goes on doing so.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Owners []ReservationOwner `json:"owners"`
	// TTL is for how long the capacity is held, from creation or startTime, whichever is later: a
	// duration of h, m, s and ms, such as 90m. 0s is for ever. Ten years at most. Default: 24h. May be
	// changed until it has run out.
	//
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|(([0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,7}([.][0-9]{1,9})?m|[0-9]{1,9}([.][0-9]{1,9})?s|[0-9]{1,12}([.][0-9]{1,9})?ms)){1,4})$') && duration(self) <= duration('87600h')",messageExpression="'ttl: \"' + self + '\" is no duration from 0s to 87600h: write it like 90m, 24h or 1h30m; 0s is for ever'",message="ttl: must be a duration from 0s to 87600h: write it like 90m, 24h or 1h30m; 0s is for ever"
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// Expires is when the Reservation ends at the latest, whatever the ttl; RFC 3339, such as
	// 2027-01-31T06:00:00Z. Without, only the ttl counts. May be changed until it has passed.
	//
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// AllocateOnce: each placement is used by one owner, once. What that owner does not use is free from
	// then on, and when all placements have been used the Reservation has succeeded. If false, what owners
	// leave is held for the next ones, until it expires. Default: true. Cannot be changed.
	//
	// +optional
	// +kubebuilder:default=true
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="allocateOnce: cannot be changed: make another Reservation with what you want"
	AllocateOnce *bool `json:"allocateOnce,omitempty"`
	// AllocatePolicy is how an owner may use what is reserved. Aligned: what the owner asks for beyond
	// that it takes from what is free on the node. Restricted: it gets no more than is reserved, of the
	// resources that are. Default: Aligned. Cannot be changed.
	//
	// +optional
	// +kubebuilder:default=Aligned
	// +kubebuilder:validation:Enum=Aligned;Restricted
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",messageExpression="'allocatePolicy: cannot be changed from ' + oldSelf + ': make another Reservation with what you want'",message="allocatePolicy: cannot be changed: make another Reservation with what you want"
	AllocatePolicy AllocatePolicy `json:"allocatePolicy,omitempty"`
	// Replicas is how many places are held, each with the requests of the template: all of them or none,
	// as a gang is placed. From 1 to 1024. Default: 1. Cannot be changed.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="replicas: cannot be changed: make another Reservation with what you want"
	Replicas int32 `json:"replicas,omitempty"`
	// StartTime is when to begin: before that time nothing is held, and no place is sought. RFC 3339.
	// Without, at once. Cannot be changed.
	//
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// NodeNames are the nodes that must hold the replicas, one for each, in the order of their
	// indexes; a node may be there several times. What is asked for is promised there from the beginning,
	// even where it is in use: only reserve pods of this Reservation get what becomes free of it. The
	// Reservation is Available once there is room for all replicas. Without, the scheduler chooses, and
	// nothing is held before it has. Cannot be changed.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	NodeNames []string `json:"nodeNames,omitempty"`
}

// ReservationOwner says which pods may use a Reservation: those to which everything that is set here
// applies.
//
// +kubebuilder:validation:XValidation:rule="has(self.object) || has(self.controller) || has(self.labelSelector) || has(self.podGroup)",message="owners: an entry is empty, and would be every pod: set object, controller, labelSelector or podGroup"
// +kubebuilder:validation:XValidation:rule="!has(self.namespace) || has(self.labelSelector)",message="owners: namespace goes with labelSelector, which is not set: set it, or remove namespace"
type ReservationOwner struct {
	// Object is one pod.
	//
	// +optional
	Object *ReservationOwnerObject `json:"object,omitempty"`
	// Controller is what controls the pod: its owner reference with controller: true.
	//
	// +optional
	Controller *ReservationOwnerController `json:"controller,omitempty"`
	// LabelSelector is labels of the pod, in one namespace. It must not be empty.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && size(self.matchExpressions) > 0",message="labelSelector: is empty, and would be every pod: set matchLabels or matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'] && (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="labelSelector.matchExpressions: each needs operator In or NotIn with values, or Exists or DoesNotExist without"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, !format.qualifiedName().validate(k).hasValue() && !format.labelValue().validate(self.matchLabels[k]).hasValue())",message="labelSelector.matchLabels: a key or value can be on no pod: correct it"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !format.qualifiedName().validate(e.key).hasValue() && (!has(e.values) || e.values.all(v, !format.labelValue().validate(v).hasValue())))",message="labelSelector.matchExpressions: a key or value can be on no pod: correct it"
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// Namespace is the namespace of the pods that labelSelector selects. Default: that of the template.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace,omitempty"`
	// PodGroup is the gang of the pod, in whichever way it is written: namespace/name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",messageExpression="'podGroup: \"' + self + '\" is no gang: write namespace/name'",message="podGroup: must be a gang: write namespace/name"
	PodGroup string `json:"podGroup,omitempty"`
}

// ReservationOwnerObject is one pod.
type ReservationOwnerObject struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID is the UID of that very pod: another pod of the same name does not count. Without, any pod of the name
	// counts, as pods of a StatefulSet have the same name again and again.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
}

// ReservationOwnerController is what controls pods: a Job, say.
type ReservationOwnerController struct {
	// APIVersion is as in owner references: batch/v1.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind is as in owner references: Job.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Namespace is the namespace of the controller, and so of its pods.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID is the UID of that very object. Without, any controller of that kind and name counts, also
	// one that is made again.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
}

// ReservationStatus is what is held, and which pods use it. Once the phase is Succeeded or Failed, it
// is what was at the end, and does not change.
type ReservationStatus struct {
	// Phase is how far the Reservation has come. Succeeded and Failed are final.
	//
	// +optional
	// +kubebuilder:validation:Enum=Pending;Available;Succeeded;Failed
	Phase ReservationPhase `json:"phase,omitempty"`
	// NodeName is the node of the placement; empty where there are several placements.
	//
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Placements are where capacity is held, one for each replica that has a place.
	//
	// +optional
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MaxItems=1024
	Placements []ReservationPlacement `json:"placements,omitempty"`
	// Allocatable is what is held, used or not: the sum over the placements.
	//
	// +optional
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
	// Allocated is how much of it owners use: the sum over the placements.
	//
	// +optional
	Allocated v1.ResourceList `json:"allocated,omitempty"`
	// OwnerCount is how many pods use the Reservation.
	//
	// +optional
	// +kubebuilder:default=0
	OwnerCount int32 `json:"ownerCount"`
	// CurrentOwners are the pods that use the Reservation, the oldest 64 of them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	CurrentOwners []ReservationConsumer `json:"currentOwners,omitempty"`
	// EndTime is when the phase became Succeeded or Failed.
	//
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// Conditions are Scheduled, written by the scheduler, and Ready, written by the controller.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReservationPlacement is where one replica is held.
type ReservationPlacement struct {
	// Index is which of the replicas it is, from 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1023
	Index int32 `json:"index"`
	// NodeName is the node.
	//
	// +kubebuilder:validation:MinLength=1
	NodeName string `json:"nodeName"`
	// Allocatable is what is held there, used or not.
	//
	// +optional
	Allocatable v1.ResourceList `json:"allocatable,omitempty"`
	// Allocated is how much of it owners use: never more than allocatable, in any resource.
	//
	// +optional
	Allocated v1.ResourceList `json:"allocated,omitempty"`
	// Spent: an owner has used the placement, and with allocateOnce no other will. Nothing is held
	// there afterwards.
	//
	// +optional
	Spent bool `json:"spent,omitempty"`
	// Annotations are what plugins have written on the pod that found the place: which GPU card it has,
	// say. An owner gets the same annotations.
	//
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ReservationConsumer is a pod that uses a placement.
type ReservationConsumer struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Index is the placement that it uses.
	Index int32 `json:"index"`
}

// ReservationList is a list of reservations.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Reservation `json:"items"`
}
