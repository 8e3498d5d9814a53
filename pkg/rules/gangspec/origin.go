package gangspec

import (
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// What is read from a pod about where it comes from is all here:
//
//	Job                  owner reference; finalizer batch.kubernetes.io/job-tracking until it has counted the pod
//	JobSet               label jobset-uid, and restart-attempt, which it raises when it makes all Jobs again, one by one
//	LeaderWorkerSet      labels name, group-index and worker-index; the leader owns the StatefulSet of its workers, and
//	                     when it is made again Kubernetes deletes that and the workers, a moment later
//	all other operators  owner reference

// Origin is where a pod comes from.
type Origin struct {
	// controller is the UID of the controller that made it; empty for none. The Jobs of a JobSet are made together, and
	// again together in its next attempt: they are one.
	Controller types.UID
	// object is the UID of the object whose pods are its gang, if it is in the gang of its owner and names that UID.
	Object types.UID
	// series is the pods that an owner makes again together; empty for a pod that is in none. issue is higher for what was
	// made later; supersedes: with this pod everything of the series that has a lower issue goes.
	Series     string
	Issue      int64
	Supersedes bool
}

// creationSlack is by how many seconds the leader of a group has to be younger than a worker to supersede it: API
// servers whose clocks differ may say of a worker that it is older than its own leader.
const creationSlack = 5

// leaderIndex is the index of the leader of a group of a LeaderWorkerSet.
const leaderIndex = "0"

// JobSetAttemptLabel is a label that JobSet gives to pods.
const JobSetAttemptLabel = "jobset.sigs.k8s.io/restart-attempt"

// OriginOf reads where a pod comes from.
func OriginOf(pod *v1.Pod) Origin {
	var o Origin
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		o.Controller = ref.UID
	}
	if SourceOf(pod) == FromOwner {
		switch owner, _ := OwnerOf(pod); owner.Kind {
		case OwnerJob:
			o.Object = o.Controller
		case OwnerJobSet:
			o.Object = types.UID(pod.Labels[v1alpha1.JobSetUIDLabel])
		case OwnerLeaderWorkerSet: // its pods do not have it
		}
	}
	if set := pod.Labels[v1alpha1.JobSetUIDLabel]; set != "" {
		attempt := pod.Labels[JobSetAttemptLabel]
		o.Controller = types.UID(set + "/" + attempt)
		if n, err := strconv.ParseUint(attempt, 10, 31); err == nil {
			o.Series, o.Issue, o.Supersedes = set, int64(n), true
		}
		return o
	}
	set, group := pod.Labels[v1alpha1.LeaderWorkerSetNameLabel], pod.Labels[v1alpha1.LeaderWorkerGroupLabel]
	index := pod.Labels[v1alpha1.LeaderWorkerIndexLabel]
	if set == "" || group == "" || index == "" {
		return o
	}
	o.Series, o.Issue, o.Supersedes = set+"/"+group, pod.CreationTimestamp.Unix(), index == leaderIndex
	if !o.Supersedes {
		o.Issue += creationSlack
	}
	return o
}

// EndOf returns when the last container of a pod ended; zero if that is not known.
func EndOf(pod *v1.Pod) time.Time {
	var end time.Time
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	return end
}

// RanToSuccess reports whether a pod has done what it was made for. kubelet writes phase Succeeded also for a pod that
// is being deleted and whose containers obey with exit code 0; its controller makes another. The controller of Jobs
// does so, too, and counts it as failed as soon as it is being deleted, unless its containers end before it looks, or
// spec.podReplacementPolicy is Failed: then it counts as succeeded, and none is made. Its finalizer is on a pod until
// it has counted it, and is taken off at once if the Job is gone.
func RanToSuccess(pod *v1.Pod) bool {
	if pod.Status.Phase != v1.PodSucceeded {
		return false
	}
	return pod.DeletionTimestamp == nil || objectstate.ControllingJob(pod) != nil &&
		slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}
