package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// get returns an object: the copy here, or else that of the base.
func (s *Server) get(r *http.Request, info *request.RequestInfo) (object, error) {
	at := refOf(info)
	s.store.mu.Lock()
	o, known := s.store.objects[at]
	if known && o != nil {
		o = clone(o)
	}
	s.store.mu.Unlock()
	switch {
	case known && o == nil:
		return nil, apierrors.NewNotFound(at.group(), at.name)
	case known:
		return o, nil
	}
	return s.read(r, at)
}

// read returns an object of the base.
func (s *Server) read(r *http.Request, at ref) (object, error) {
	path := "/api/" + at.Version
	if at.Group != "" {
		path = "/apis/" + at.Group + "/" + at.Version
	}
	if at.namespace != "" {
		path += "/namespaces/" + at.namespace
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, path+"/"+at.Resource+"/"+at.name, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", at.Resource, at.name, err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := s.base.Read(request)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", at.Resource, at.name, err)
	}
	defer response.Body.Close()
	o := object{}
	if err := json.NewDecoder(response.Body).Decode(&o); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", at.Resource, at.name, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, apierrors.NewGenericServerResponse(response.StatusCode, "get", at.group(), at.name, text(o, "message"), 0, true)
	}
	return o, nil
}

// write carries out what is to be written, here.
func (s *Server) write(r *http.Request, info *request.RequestInfo) (object, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("reading what is to be written: %w", err)
	}
	at := refOf(info)
	if info.Verb == "create" && info.Subresource == "" {
		return s.make(at, body)
	}
	old, err := s.get(r, info)
	if err != nil {
		return nil, err
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if now, known := s.store.objects[at]; known {
		if now == nil {
			return nil, apierrors.NewNotFound(at.group(), at.name)
		}
		old = clone(now) // it may have changed since
	}
	switch info.Verb + "/" + info.Subresource {
	case "create/binding":
		return success, s.store.bind(at, old, body)
	case "create/eviction", "delete/":
		return success, s.store.remove(at, old)
	case "update/", "update/status":
		return s.store.replace(at, old, body)
	case "patch/", "patch/status":
		changed, err := patched(old, types.PatchType(r.Header.Get("Content-Type")), body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if uid := text(meta(changed), "uid"); uid != text(meta(old), "uid") {
			return nil, apierrors.NewConflict(at.group(), at.name, errors.New("the UID differs"))
		}
		return clone(s.store.put(at, changed, watch.Modified)), nil
	}
	return nil, apierrors.NewMethodNotSupported(at.group(), info.Verb+" "+info.Subresource)
}

var success = object{"kind": "Status", "apiVersion": "v1", "status": "Success"}

// make makes an object. Events are kept apart: nobody watches them.
func (s *Server) make(at ref, body []byte) (object, error) {
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
	if at.name = text(meta(o), "name"); at.name == "" {
		at.name = text(meta(o), "generateName") + strings.ToLower(rand5())
		meta(o)["name"] = at.name
	}
	if at.namespace != "" {
		meta(o)["namespace"] = at.namespace
	}
	if s.store.objects[at] != nil {
		return nil, apierrors.NewAlreadyExists(at.group(), at.name)
	}
	return clone(s.store.create(at, o)), nil
}

func rand5() string { return string(uuid.NewUUID())[:5] }

// create gives an object what the API server gives to new ones.
func (s *store) create(at ref, o object) object {
	m := meta(o)
	if text(m, "uid") == "" {
		m["uid"] = string(uuid.NewUUID())
	}
	if text(m, "creationTimestamp") == "" {
		m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	return s.put(at, o, watch.Added)
}

// bind binds a pod.
func (s *store) bind(at ref, pod object, body []byte) error {
	o, err := decode(body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	target, _ := o["target"].(object)
	spec, _ := pod["spec"].(object)
	if spec == nil || text(target, "name") == "" {
		return apierrors.NewBadRequest("a binding needs a pod and a target.name")
	}
	if uid := text(meta(o), "uid"); uid != "" && uid != text(meta(pod), "uid") || text(spec, "nodeName") != "" {
		return apierrors.NewConflict(at.group(), at.name, errors.New("it is another pod, or has a node"))
	}
	spec["nodeName"] = text(target, "name")
	if given, ok := meta(o)["annotations"].(object); ok {
		annotations, _ := meta(pod)["annotations"].(object)
		if annotations == nil {
			annotations = object{}
			meta(pod)["annotations"] = annotations
		}
		for key, value := range given {
			annotations[key] = value
		}
	}
	status, _ := pod["status"].(object)
	if status == nil {
		status = object{}
		pod["status"] = status
	}
	delete(status, "nominatedNodeName")
	status["conditions"] = []any{object{"type": string(v1.PodScheduled), "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}
	s.put(at, pod, watch.Modified)
	return nil
}

// remove deletes an object at once. The claims that were made for a pod go with it, as Kubernetes' garbage collection has it.
func (s *store) remove(at ref, o object) error {
	s.drop(at, o)
	if at.Resource != "pods" {
		return nil
	}
	uid := text(meta(o), "uid")
	for _, other := range s.order {
		claim := s.objects[other]
		if claim == nil || other.Resource != "resourceclaims" {
			continue
		}
		owners, _ := meta(claim)["ownerReferences"].([]any)
		for _, owner := range owners {
			if owner, ok := owner.(object); ok && text(owner, "uid") == uid {
				s.drop(other, claim)
				break
			}
		}
	}
	return nil
}

// replace stores another version of an object, if whoever writes it has seen the last one.
func (s *store) replace(at ref, old object, body []byte) (object, error) {
	o, err := decode(body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if version := text(meta(o), "resourceVersion"); version != "" && version != text(meta(old), "resourceVersion") {
		return nil, apierrors.NewConflict(at.group(), at.name, errors.New("the object has been modified"))
	}
	for _, key := range []string{"apiVersion", "kind"} {
		if o[key] == nil {
			o[key] = old[key]
		}
	}
	return clone(s.put(at, o, watch.Modified)), nil
}

// patched returns a patched copy of an object.
func patched(old object, kind types.PatchType, patch []byte) (object, error) {
	data, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("patching: %w", err)
	}
	var result []byte
	switch kind {
	case types.MergePatchType:
		result, err = jsonpatch.MergePatch(data, patch)
	case types.JSONPatchType:
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(patch); err == nil {
			result, err = operations.Apply(data)
		}
	case types.StrategicMergePatchType:
		var typed runtime.Object
		if typed, err = scheme.Scheme.New(schema.FromAPIVersionAndKind(text(old, "apiVersion"), text(old, "kind"))); err == nil {
			result, err = strategicpatch.StrategicMergePatch(data, patch, typed)
		}
	default:
		return nil, fmt.Errorf("patching: %q is not supported", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("patching: %w", err)
	}
	o := object{}
	if err := json.Unmarshal(result, &o); err != nil {
		return nil, fmt.Errorf("patching: %w", err)
	}
	return o, nil
}

// decode reads an object, as JSON or as protobuf.
func decode(body []byte) (object, error) {
	o := object{}
	if len(body) > 0 && body[0] == '{' {
		return o, json.Unmarshal(body, &o)
	}
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	data, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	return o, json.Unmarshal(data, &o)
}

func clone(o object) object { return runtime.DeepCopyJSON(o) }
