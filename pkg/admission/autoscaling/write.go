package autoscaling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// ask makes sure that the request for what a gang asks for exists, and no other. Users get an event for what prevents
// it; it is tried again when the gang is next checked. A request that failed stays, so that it is not made again and
// again.
func (r *Requester) ask(ctx context.Context, e gangstate.Explanation, made []*unstructured.Unstructured) error {
	if !r.informer.HasSynced() {
		return nil // the kind is not served, or may not be watched: that has been logged
	}
	request, err := Demand{
		Gang: e.Gang, SchedulerName: r.SchedulerName, ClassName: r.ClassName, Topology: e.Topology,
		Owner: ownerOf(e), Pods: e.Pending,
	}.Request()
	if err != nil {
		r.tell(e, notRequested(e, err))
		return r.withdraw(ctx, e.Gang, made, "")
	}
	if err := r.withdraw(ctx, e.Gang, made, request.Name); err != nil {
		return err
	}
	for _, m := range made {
		if m.GetName() != request.Name {
			continue
		}
		if why, over := EndOf(m); over {
			r.tell(e, ended(e, request.Name, why))
		}
		if r.phases[e.Gang].withdrawing == request.Name {
			if err := r.createTemplates(ctx, request); err != nil {
				return err
			}
			r.setWithdrawing(e.Gang, "")
		}
		return r.consume(ctx, e, request.Name)
	}
	err = r.create(ctx, request)
	switch {
	case apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsForbidden(err):
		r.tell(e, forbidden(e, err))
		return nil
	case apierrors.IsInvalid(err):
		r.tell(e, notRequested(e, err))
		return nil
	case err != nil:
		return err
	}
	r.tell(e, requested(e, request.Name))
	return r.consume(ctx, e, request.Name)
}

// tell records an event, if it is new.
func (r *Requester) tell(e gangstate.Explanation, news status.Event) {
	p := r.phases[e.Gang]
	if p.told == news.Note {
		return
	}
	p.told = news.Note
	r.phases[e.Gang] = p
	news.Record(r.Recorder)
}

// ownerOf returns the owner of a request: the PodGroup, or else the controller of the first member that waits, or that
// pod.
func ownerOf(e gangstate.Explanation) metav1.OwnerReference {
	first := e.Pending[0]
	if e.Object.UID != "" {
		return metav1.OwnerReference{APIVersion: e.Object.Kind.APIVersion(), Kind: "PodGroup",
			Name: e.Gang.Name, UID: e.Object.UID}
	}
	if c := metav1.GetControllerOf(first); c != nil {
		return metav1.OwnerReference{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID}
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: first.Name, UID: first.UID}
}

// awaitTurn returns when the rate limit allows another call.
func (r *Requester) awaitTurn(ctx context.Context) error {
	if err := r.writes.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the rate limit: %w", err)
	}
	return nil
}

// create writes the templates, and then the request. An object that exists under the same name is the same.
func (r *Requester) create(ctx context.Context, request Request) error {
	if err := r.createTemplates(ctx, request); err != nil {
		return err
	}
	if err := r.awaitTurn(ctx); err != nil {
		return err
	}
	_, err := r.Requests.Resource(Resource).Namespace(request.Object.GetNamespace()).Create(ctx,
		request.Object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making ProvisioningRequest %s: %w", klog.KObj(request.Object), err)
	}
	return nil
}

func (r *Requester) createTemplates(ctx context.Context, request Request) error {
	for i := range request.Templates {
		template := &request.Templates[i]
		if err := r.awaitTurn(ctx); err != nil {
			return err
		}
		if _, err := r.Client.CoreV1().PodTemplates(template.Namespace).Create(ctx, template,
			metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making PodTemplate %s: %w", klog.KObj(template), err)
		}
	}
	return nil
}

// withdraw deletes requests of a gang with their templates, except for one name.
func (r *Requester) withdraw(ctx context.Context, gang gangspec.Key, made []*unstructured.Unstructured,
	except string) error {
	var errs []error
	for _, request := range made {
		if request.GetName() != except {
			r.setWithdrawing(gang, request.GetName())
			errs = append(errs, r.delete(ctx, request))
		}
	}
	return errors.Join(errs...)
}

func (r *Requester) setWithdrawing(gang gangspec.Key, request string) {
	p := r.phases[gang]
	p.withdrawing = request
	r.phases[gang] = p
}

// delete deletes a request after its templates: nothing else names these.
func (r *Requester) delete(ctx context.Context, request *unstructured.Unstructured) error {
	if err := r.deleteTemplates(ctx, request); err != nil {
		return err
	}
	namespace, uid := request.GetNamespace(), request.GetUID()
	if err := r.awaitTurn(ctx); err != nil {
		return err
	}
	only := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	err := r.Requests.Resource(Resource).Namespace(namespace).Delete(ctx, request.GetName(), only)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting ProvisioningRequest %s: %w", klog.KObj(request), err)
	}
	return nil
}

func (r *Requester) deleteTemplates(ctx context.Context, request *unstructured.Unstructured) error {
	namespace := request.GetNamespace()
	for _, name := range TemplatesOf(request) {
		if err := r.awaitTurn(ctx); err != nil {
			return err
		}
		if err := r.Client.CoreV1().PodTemplates(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting PodTemplate %s: %w", klog.KRef(namespace, name), err)
		}
	}
	return nil
}

// consume annotates members with the name of their request: otherwise Cluster Autoscaler would add nodes for them once
// more while those of the request are on their way.
func (r *Requester) consume(ctx context.Context, e gangstate.Explanation, name string) error {
	var errs []error
	for _, pod := range e.Pending {
		if pod.Annotations[ConsumeAnnotation] != name {
			errs = append(errs, r.annotate(ctx, pod, name, r.ClassName))
		}
	}
	return errors.Join(errs...)
}

// release removes the annotations: as long as members have them, Cluster Autoscaler adds no nodes for them in any other
// way.
func (r *Requester) release(ctx context.Context, pods []*v1.Pod) error {
	var errs []error
	for _, pod := range pods {
		errs = append(errs, r.annotate(ctx, pod, nil, nil))
	}
	return errors.Join(errs...)
}

// annotate writes the annotations of a pod, or with nil removes them. A pod that is gone needs none.
func (r *Requester) annotate(ctx context.Context, pod *v1.Pod, name, class any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID, // the API server refuses the patch for another pod of this name
		"annotations": map[string]any{ConsumeAnnotation: name, ClassNameAnnotation: class},
	}})
	if err != nil {
		return fmt.Errorf("annotating pod %s: %w", klog.KObj(pod), err)
	}
	if err := r.awaitTurn(ctx); err != nil {
		return err
	}
	_, err = r.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("annotating pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}
