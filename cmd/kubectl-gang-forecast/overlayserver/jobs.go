package overlayserver

import (
	"fmt"
	"net/http"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
)

var (
	jobsResource = batchv1.SchemeGroupVersion.WithResource("jobs")
	podsResource = v1.SchemeGroupVersion.WithResource("pods")
)

// deletePodsOfSuspended deletes the pods of a Job that is suspended, as the Job controller does.
func (s *Server) deletePodsOfSuspended(r *http.Request, at ref, written *object) error {
	if at.GroupVersionResource != jobsResource {
		return nil
	}
	job := &batchv1.Job{}
	if err := typed(written, job); err != nil || !jobsuspension.IsSuspended(job) {
		return err
	}
	pods, err := s.podsOf(r, job)
	if err != nil {
		return fmt.Errorf("deleting the pods of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for _, pod := range pods {
		claims, err := s.claimsOf(r, pod.object)
		if err != nil {
			return err
		}
		s.store.mu.Lock()
		now, changed, gone := s.store.get(pod.at)
		if !changed {
			now = pod.object
		}
		if gone == nil {
			err = s.store.remove(pod.at, now, claims)
		}
		s.store.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// podsOf returns the pods of a Job that have not ended.
func (s *Server) podsOf(r *http.Request, job *batchv1.Job) (own []found, err error) {
	listed, err := (&source.Cluster{Base: s.base}).Pods(r.Context(), job.Namespace)
	if err != nil {
		return nil, err
	}
	for _, pod := range listed {
		if owner := objectstate.ControllingJob(pod); owner == nil || owner.UID != job.UID || objectstate.HasEnded(pod) {
			continue
		}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			return nil, fmt.Errorf("reading a pod: %w", err)
		}
		own = append(own, found{ref{podsResource, pod.Namespace, pod.Name}, &object{Object: o}})
	}
	return own, nil
}
