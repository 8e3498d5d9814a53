package overlayserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/kube/apiwrites"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
)

// find returns an object: the copy here, or else that of the base.
func (s *Server) find(r *http.Request, at ref) (*object, error) {
	s.store.mu.Lock()
	o, known, err := s.store.get(at)
	s.store.mu.Unlock()
	if known {
		return o, err
	}
	return s.read(r, at)
}

// PathOf returns where an API server has an object. The namespace is empty where its kind has none.
func PathOf(resource schema.GroupVersionResource, namespace, name string) string {
	path := "/api/" + resource.Version
	if resource.Group != "" {
		path = "/apis/" + resource.Group + "/" + resource.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource.Resource + "/" + name
}

// read returns an object of the base.
func (s *Server) read(r *http.Request, at ref) (*object, error) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet,
		PathOf(at.GroupVersionResource, at.namespace, at.name), nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", at.Resource, at.name, err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := s.base.Read(request)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", at.Resource, at.name, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	o := &object{}
	if err == nil {
		err = json.Unmarshal(body, &o.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", at.Resource, at.name, err)
	}
	if response.StatusCode != http.StatusOK {
		message, _, _ := unstructured.NestedString(o.Object, "message")
		return nil, apierrors.NewGenericServerResponse(response.StatusCode, "get", at.GroupResource(), at.name,
			message, 0, true)
	}
	return o, nil
}

// write applies a write to the overlay, and then does what controllers would do.
func (s *Server) write(r *http.Request, info *request.RequestInfo) (*object, error) {
	written, err := s.change(r, info)
	if err != nil || info.Subresource != "" || info.Verb != "update" && info.Verb != "patch" {
		return written, err
	}
	return written, errors.Join(s.bindVolumes(r, refOf(info), written), s.deletePodsOfSuspended(r, refOf(info), written))
}

// change applies a write to the overlay.
func (s *Server) change(r *http.Request, info *request.RequestInfo) (*object, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the body of a write: %w", err)
	}
	at := refOf(info)
	if info.Verb == "create" && info.Subresource == "" {
		return s.make(at, body)
	}
	old, err := s.find(r, at)
	if err != nil {
		return nil, err
	}
	if info.Verb == "delete" {
		options := &metav1.DeleteOptions{}
		if err := decodeInto(body, options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if p := options.Preconditions; p != nil {
			if err := apiwrites.Check(at.GroupResource(), old, ptr.Deref(p.UID, ""), ""); err != nil {
				return nil, err
			}
		}
		if len(options.DryRun) > 0 {
			return success, nil
		}
	}
	var claims []found // that go with it, or are free then
	if at.Resource == "pods" && (info.Verb == "delete" || info.Subresource == "eviction") {
		if claims, err = s.claimsOf(r, old); err != nil {
			return nil, err
		}
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if now, known, err := s.store.get(at); err != nil {
		return nil, err
	} else if known {
		old = now // it may have changed since
	}
	switch info.Verb + "/" + info.Subresource {
	case "create/binding":
		return success, s.store.bind(at, old, body)
	case "create/eviction", "delete/":
		return success, s.store.remove(at, old, claims)
	case "update/", "update/status":
		return s.store.replace(at, old, body)
	case "patch/", "patch/status":
		return s.store.patch(at, old, types.PatchType(r.Header.Get("Content-Type")), body)
	}
	return nil, apierrors.NewMethodNotSupported(at.GroupResource(), info.Verb+" "+info.Subresource)
}

// patch changes an object. mu is held.
func (s *store) patch(at ref, old *object, kind types.PatchType, body []byte) (*object, error) {
	o := &object{}
	if err := apiwrites.Patch(old, kind, body, o); err != nil {
		return nil, err
	}
	if err := apiwrites.Check(at.GroupResource(), o, old.GetUID(), ""); err != nil {
		return nil, err
	}
	s.put(at, o, watch.Modified)
	return o, nil
}

var success = &object{Object: map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}}

// make makes an object. Events are kept apart: they are not watched.
func (s *Server) make(at ref, body []byte) (*object, error) {
	o, err := decode(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if at.Resource == "events" {
		s.store.events = append(s.store.events, o)
		return o, nil
	}
	if at.name = o.GetName(); at.name == "" {
		at.name = o.GetGenerateName() + string(uuid.NewUUID())[:5]
		o.SetName(at.name)
	}
	if at.namespace != "" {
		o.SetNamespace(at.namespace)
	}
	if _, known, err := s.store.get(at); known && err == nil {
		return nil, apierrors.NewAlreadyExists(at.GroupResource(), at.name)
	}
	s.store.create(at, o)
	return o, nil
}

// create gives an object what the API server gives to new ones.
func (s *store) create(at ref, o *object) {
	if o.GetUID() == "" {
		o.SetUID(uuid.NewUUID())
	}
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.Now())
	}
	s.put(at, o, watch.Added)
}

// bind binds a pod.
func (s *store) bind(at ref, old *object, body []byte) error {
	binding, pod := &v1.Binding{}, &v1.Pod{}
	if err := decodeInto(body, binding); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := typed(old, pod); err != nil {
		return err
	}
	if err := apiwrites.Bind(pod, binding); err != nil {
		return err
	}
	return s.putTyped(at, pod, watch.Modified)
}

// remove deletes an object, and frees the claims of a pod. mu is held.
func (s *store) remove(at ref, o *object, claims []found) error {
	s.put(at, o.DeepCopy(), watch.Deleted)
	for _, claim := range claims {
		if err := s.release(claim, o.GetUID()); err != nil {
			return err
		}
	}
	return nil
}

// release removes a deleted pod from a ResourceClaim, as kube-controller-manager does: a claim made for the pod is
// deleted with it, and a claim that no pod uses is deallocated.
func (s *store) release(one found, pod types.UID) error {
	o := one.object
	switch now, known, err := s.get(one.at); {
	case err != nil:
		return nil // it is deleted
	case known:
		o = now // it may have changed since
	}
	claim := &resourceapi.ResourceClaim{}
	if err := typed(o, claim); err != nil {
		return err
	}
	if slices.ContainsFunc(claim.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == pod }) {
		s.put(one.at, o.DeepCopy(), watch.Deleted)
		return nil
	}
	users := len(claim.Status.ReservedFor)
	claim.Status.ReservedFor = slices.DeleteFunc(claim.Status.ReservedFor,
		func(user resourceapi.ResourceClaimConsumerReference) bool { return user.UID == pod })
	switch len(claim.Status.ReservedFor) {
	case users:
		return nil
	case 0:
		claim.Status.Allocation = nil
	}
	return s.putTyped(one.at, claim, watch.Modified)
}

var claimsResource = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")

// found is an object, and where it is.
type found struct {
	at     ref
	object *object
}

// claimsOf returns the ResourceClaims that a pod uses, those that there are, and all that were made here: the pod's
// status may lack one yet.
func (s *Server) claimsOf(r *http.Request, o *object) (list []found, err error) {
	pod := &v1.Pod{}
	if err := typed(o, pod); err != nil {
		return nil, err
	}
	s.store.mu.Lock()
	for _, at := range s.store.order {
		if e := s.store.entries[at]; !e.deleted && at.Resource == claimsResource.Resource && at.namespace == pod.Namespace {
			list = append(list, found{at, e.object})
		}
	}
	s.store.mu.Unlock()
	for _, name := range deviceclaims.NamesOf(pod) {
		at := ref{claimsResource, pod.Namespace, name}
		switch claim, err := s.find(r, at); {
		case err == nil:
			list = append(list, found{at, claim})
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return list, nil
}

// replace stores another version of an object, if the writer has seen the last one.
func (s *store) replace(at ref, old *object, body []byte) (*object, error) {
	o, err := decode(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := apiwrites.Check(at.GroupResource(), old, o.GetUID(), o.GetResourceVersion()); err != nil {
		return nil, err
	}
	if o.GetKind() == "" {
		o.SetGroupVersionKind(old.GroupVersionKind())
	}
	s.put(at, o, watch.Modified)
	return o, nil
}

// decode reads an object, as JSON or as protobuf.
func decode(body []byte) (*object, error) {
	o := &object{}
	if len(body) > 0 && body[0] == '{' {
		return o, json.Unmarshal(body, &o.Object)
	}
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err == nil {
		o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	}
	if err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	return o, nil
}

// decodeInto reads an object of a known type, as JSON or as protobuf; nothing is an empty one.
func decodeInto(body []byte, into runtime.Object) error {
	if len(body) == 0 {
		return nil
	}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		return fmt.Errorf("reading what is asked for: %w", err)
	}
	return nil
}
