package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PodMigrationResource is the resource name of PodMigration.
var PodMigrationResource = SchemeGroupVersion.WithResource("podmigrations")

// Keys of migrations.
const (
	// MigrationAnnotation is written by the controller on the PodGroup, of either API, of pods that are moved: how far
	// their moves have come, as JSON: {"phase":"Running","pods":3,"moved":1}.
	MigrationAnnotation = "scheduling.lockstep.dev/migration"
	// MigrationLabel is the UID of the PodMigration that a Reservation is made for (label on the Reservation).
	MigrationLabel = "scheduling.lockstep.dev/migration"
	// InPlaceOfAnnotation is the UID of the pod that moves to what a Reservation holds (annotation on the Reservation). As
	// long as that pod counts in its queue, what is held counts only beyond what the pod has there; of several
	// Reservations for the same pod this is so for one.
	InPlaceOfAnnotation = "scheduling.lockstep.dev/in-place-of"
	// WhyAnnotation on a PodMigration says what the move is for. The event that the pod gets contains it.
	WhyAnnotation = "scheduling.lockstep.dev/why"
	// PlanLabel is the name of the DefragmentationPlan that a PodMigration or a Reservation belongs to (label).
	PlanLabel = "scheduling.lockstep.dev/plan"
	// ReleaseFinalizer keeps a PodMigration or a DefragmentationPlan until what was reserved for it is released.
	ReleaseFinalizer = "scheduling.lockstep.dev/release"
)

// MigrationPhase is how far a PodMigration has come.
type MigrationPhase string

const (
	// MigrationPending: its target is being reserved, or the pod is not to be evicted yet. Nothing has happened to the
	// pod.
	MigrationPending MigrationPhase = "Pending"
	// MigrationRunning: the target is reserved, and the pod is being evicted, or its successor awaited.
	MigrationRunning MigrationPhase = "Running"
	// MigrationSucceeded: the successor is on the target. Final.
	MigrationSucceeded MigrationPhase = "Succeeded"
	// MigrationFailed: nothing more will be done, and it no longer reserves anything. Final.
	MigrationFailed MigrationPhase = "Failed"
)

// Types and reasons of a PodMigration's conditions.
const (
	// MigrationReserved is the condition that the target is reserved.
	MigrationReserved = "Reserved"
	// MigrationReasonReserved goes with MigrationReserved when it is true.
	MigrationReasonReserved = "Reserved"
	// MigrationReasonReserving: the Reservation has no place yet.
	MigrationReasonReserving = "Reserving"
	// MigrationReasonReleased: it no longer reserves anything.
	MigrationReasonReleased = "Released"

	// MigrationEvicted is the condition that the pod has been evicted.
	MigrationEvicted = "Evicted"
	// MigrationReasonEvicted goes with MigrationEvicted when it is true.
	MigrationReasonEvicted = "Evicted"
	// MigrationReasonSuspended: spec.suspend is true.
	MigrationReasonSuspended = "Suspended"
	// MigrationReasonWaiting: the target is not reserved yet.
	MigrationReasonWaiting = "Waiting"
	// MigrationReasonEvicting: the eviction is about to be asked for.
	MigrationReasonEvicting = "Evicting"

	// MigrationComplete is the condition that it has come to its end.
	MigrationComplete = "Complete"
	// MigrationReasonMoved: the successor is on the target.
	MigrationReasonMoved = "Moved"
	// MigrationReasonPodGone: the pod went, ended, or was elsewhere before it was evicted, or no successor comes to the
	// target: its controller went, too, or the successor has got another node. It also goes with MigrationEvicted, when a
	// successor is awaited all the same.
	MigrationReasonPodGone = "PodGone"
	// MigrationReasonNoController: nothing would make the pod again.
	MigrationReasonNoController = "NoController"
	// MigrationReasonNoRoom: the target could not be reserved in time, or no scheduler learned in time for whom it is.
	MigrationReasonNoRoom = "NoRoom"
	// MigrationReasonReservationLost: the Reservation ended, was used by another pod, or was not made for this
	// PodMigration.
	MigrationReasonReservationLost = "ReservationLost"
	// MigrationReasonDisruptionBudget: a PodDisruptionBudget does not allow the eviction now.
	MigrationReasonDisruptionBudget = "DisruptionBudget"
	// MigrationReasonRefused: the API server refuses the eviction.
	MigrationReasonRefused = "Refused"
	// MigrationReasonNoSuccessor: no successor came to the target in time.
	MigrationReasonNoSuccessor = "NoSuccessor"
	// MigrationReasonPodStays: the pod is being deleted, and does not end.
	MigrationReasonPodStays = "PodStays"
	// MigrationReasonCancelled: it is being deleted.
	MigrationReasonCancelled = "Cancelled"
)

// PodMigration moves a pod to another node: the target is reserved, then the pod evicted, and its successor is led
// to what is reserved.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pmig
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podName`
// +kubebuilder:printcolumn:name="From",type=string,JSONPath=`.spec.sourceNode`
// +kubebuilder:printcolumn:name="To",type=string,JSONPath=`.spec.targetNode`
// +kubebuilder:printcolumn:name="Successor",type=string,JSONPath=`.status.successor.name`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodMigration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PodMigrationSpec `json:"spec"`
	// +optional
	Status PodMigrationStatus `json:"status,omitempty"`
}

// PodMigrationSpec says which pod is to restart where. Only suspend can be changed.
//
// +kubebuilder:validation:XValidation:rule="self.podName == oldSelf.podName && self.podUID == oldSelf.podUID && self.sourceNode == oldSelf.sourceNode && self.targetNode == oldSelf.targetNode && has(self.podGroup) == has(oldSelf.podGroup) && (!has(self.podGroup) || self.podGroup == oldSelf.podGroup) && has(self.reservation) == has(oldSelf.reservation) && (!has(self.reservation) || self.reservation == oldSelf.reservation) && has(self.timeout) == has(oldSelf.timeout) && (!has(self.timeout) || duration(self.timeout) == duration(oldSelf.timeout)) && (has(self.allowBarePod) && self.allowBarePod) == (has(oldSelf.allowBarePod) && oldSelf.allowBarePod)",message="spec: only suspend can be changed: make another PodMigration with what you want"
// +kubebuilder:validation:XValidation:rule="self.sourceNode != self.targetNode",fieldPath=".targetNode",message="targetNode: is the sourceNode: name another node"
type PodMigrationSpec struct {
	// PodName is the pod to move, in the namespace of the PodMigration.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	PodName string `json:"podName"`
	// PodUID is the UID of that very pod. Another pod of the same name is not moved.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	PodUID types.UID `json:"podUID"`
	// PodGroup is the name of the gang that the pod is in, if any.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PodGroup string `json:"podGroup,omitempty"`
	// SourceNode is where the pod runs.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SourceNode string `json:"sourceNode"`
	// TargetNode is where its successor is to run.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	TargetNode string `json:"targetNode"`
	// Reservation is the name of the Reservation that holds the target. Default: migration- and the UID of the
	// PodMigration.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Reservation string `json:"reservation,omitempty"`
	// Suspend: the target is reserved, and the pod is not evicted until this is false. Default: false.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// AllowBarePod: a pod without a controller is evicted, too; it is made again under its name by other
	// means. Default: false.
	//
	// +optional
	AllowBarePod bool `json:"allowBarePod,omitempty"`
	// Timeout is how long the target may take to be reserved, and then the successor to come, each: from 1s to
	// 24h. Then what is reserved is released. Time in which the PodMigration is suspended does not count.
	// Default: 10m.
	//
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,7}([.][0-9]{1,9})?m|[0-9]{1,9}([.][0-9]{1,9})?s|[0-9]{1,12}([.][0-9]{1,9})?ms)){1,4}$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",messageExpression="'timeout: \"' + self + '\" is no duration from 1s to 24h: write it like 90s or 10m'",message="timeout: must be a duration from 1s to 24h: write it like 90s or 10m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// PodMigrationStatus is how far a PodMigration has come. Once the phase is Succeeded or Failed it does not
// change.
type PodMigrationStatus struct {
	// Phase is how far the PodMigration has come. Succeeded and Failed are final.
	//
	// +optional
	// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
	Phase MigrationPhase `json:"phase,omitempty"`
	// Reservation is the name of the Reservation that holds, or held, the target.
	//
	// +optional
	Reservation string `json:"reservation,omitempty"`
	// Successors are the pods that may use the target once the pod is about to be evicted: those of its controller, of
	// its rank where it has one. Unset for a pod without a controller: then it is any pod that gets its name.
	//
	// +optional
	Successors *MigrationSuccessors `json:"successors,omitempty"`
	// Successor is the pod that came to the target.
	//
	// +optional
	Successor *MigrationSuccessor `json:"successor,omitempty"`
	// StartTime is when the PodMigration was first seen not to be suspended.
	//
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// GoneTime is when the pod was seen to be gone, after its eviction.
	//
	// +optional
	GoneTime *metav1.Time `json:"goneTime,omitempty"`
	// EndTime is when the phase became Succeeded or Failed.
	//
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// Conditions are Reserved, Evicted and Complete.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MigrationSuccessors are pods that have a controller, or labels, or both.
type MigrationSuccessors struct {
	// Controller is the controller of the pods.
	//
	// +optional
	Controller *ReservationOwnerController `json:"controller,omitempty"`
	// MatchLabels are labels that they all have.
	//
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// MigrationSuccessor is a pod that took the place of another.
type MigrationSuccessor struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// PodMigrationList is a list of pod migrations.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type PodMigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodMigration `json:"items"`
}
