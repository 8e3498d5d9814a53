package source

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
)

// object is one of any kind, as JSON has it.
type object = map[string]any

// dumpVersion is the version of the form of dumps.
const dumpVersion = 1

// Dump is what a scheduler reads of a cluster at one time. It is a [Base].
type Dump struct {
	Version int `json:"version"`
	// Taken is when.
	Taken time.Time `json:"taken"`
	// SchedulerConfig is the configuration of the cluster's scheduler; empty for the embedded one.
	SchedulerConfig string `json:"schedulerConfig,omitempty"`
	// Answers are the answers to requests, as JSON, by path and query.
	Answers map[string]json.RawMessage `json:"answers"`

	mu    sync.Mutex
	lists map[string]object // those of Answers that were looked into
}

// Recorder is a base that notes what is read of another.
type Recorder struct {
	base Base
	mu   sync.Mutex
	dump *Dump
}

// NewRecorder makes a recorder.
func NewRecorder(base Base, schedulerConfig string) *Recorder {
	return &Recorder{base: base, dump: &Dump{Version: dumpVersion, Taken: time.Now().UTC(),
		SchedulerConfig: schedulerConfig, Answers: map[string]json.RawMessage{}}}
}

// Read implements Base.
func (rec *Recorder) Read(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.Header.Set("Accept", runtime.ContentTypeJSON)
	query := asked.URL.Query()
	query.Del("limit") // whole lists
	asked.URL.RawQuery = query.Encode()
	response, err := rec.base.Read(asked)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.URL.Path, err)
	}
	if body, err = redact(body); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.URL.Path, err)
	}
	rec.mu.Lock()
	rec.dump.Answers[keyOf(r.URL)] = body
	rec.mu.Unlock()
	return answered(http.StatusOK, body), nil
}

// Reads returns how many answers were read so far.
func (rec *Recorder) Reads() int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return len(rec.dump.Answers)
}

// Write writes a dump of what was read.
func (rec *Recorder) Write(w io.Writer) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	zip := gzip.NewWriter(w)
	if err := json.NewEncoder(zip).Encode(rec.dump); err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	return nil
}

// ReadDump reads a dump.
func ReadDump(r io.Reader) (*Dump, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading the dump: %w", err)
	}
	d := &Dump{}
	if err := json.NewDecoder(zip).Decode(d); err != nil {
		return nil, fmt.Errorf("reading the dump: %w", err)
	}
	if d.Version != dumpVersion {
		return nil, fmt.Errorf("reading the dump: its version is %d, and %d is understood", d.Version, dumpVersion)
	}
	return d, nil
}

// redact leaves out of objects what no scheduler looks at, and what may be secret: which manager wrote which field, and
// what containers run, wherever there are some: in pods, and in the templates of objects that make them.
func redact(body []byte) ([]byte, error) {
	o := object{}
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	if _, isList := o["items"].([]any); !isList {
		return body, nil
	}
	for _, item := range objectsOf(o["items"]) {
		unstructured.RemoveNestedField(item, "metadata", "managedFields")
		unstructured.RemoveNestedField(item, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
		spareContainers(item)
	}
	return json.Marshal(o)
}

// private are the fields of containers that reveal what they run, and with what.
var private = []string{"env", "envFrom", "args", "command", "lifecycle", "livenessProbe", "readinessProbe",
	"startupProbe"}

// spareContainers leaves these out of all containers in a value.
func spareContainers(value any) {
	switch v := value.(type) {
	case object:
		for key, inner := range v {
			if key == "containers" || key == "initContainers" || key == "ephemeralContainers" {
				for _, container := range objectsOf(inner) {
					for _, field := range private {
						delete(container, field)
					}
				}
			}
			spareContainers(inner)
		}
	case []any:
		for _, inner := range v {
			spareContainers(inner)
		}
	}
}

// Read implements Base: what was read is answered again, and an object is looked up in the list that has it.
func (d *Dump) Read(r *http.Request) (*http.Response, error) {
	if body, ok := d.Answers[keyOf(r.URL)]; ok {
		return answered(http.StatusOK, body), nil
	}
	info, err := access.Requests.NewRequestInfo(r)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.URL.Path, err)
	}
	if info.IsResourceRequest {
		if o := d.find(info); o != nil {
			body, err := json.Marshal(o)
			return answered(http.StatusOK, body), err
		}
	}
	return answered(http.StatusNotFound,
		[]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,`+
			`"message":"the dump does not have it"}`)), nil
}

// find looks for an object, or for those of a namespace, in the lists of all namespaces. A list is not narrowed by
// selectors.
func (d *Dump) find(info *request.RequestInfo) object {
	name := info.Name
	if info.Verb != "get" {
		name = "" // a list may be of what has a name
	}
	path := "/" + info.APIPrefix
	if info.APIGroup != "" {
		path += "/" + info.APIGroup
	}
	path += "/" + info.APIVersion + "/" + info.Resource
	var found object
	for key := range d.Answers {
		if key != path && !strings.HasPrefix(key, path+"?") {
			continue
		}
		list := d.list(key)
		var own []any
		for _, item := range objectsOf(list["items"]) {
			one := unstructured.Unstructured{Object: item}
			// In a request for a Namespace, info.Namespace is its own name.
			if info.Namespace != "" && info.Resource != "namespaces" && one.GetNamespace() != info.Namespace {
				continue
			}
			if name != "" && one.GetName() == name {
				of := unstructured.Unstructured{Object: list}
				one.Object = runtime.DeepCopyJSON(item)
				one.SetAPIVersion(of.GetAPIVersion())
				one.SetKind(strings.TrimSuffix(of.GetKind(), "List"))
				return one.Object
			}
			own = append(own, item)
		}
		if name != "" {
			continue
		}
		if found == nil {
			found = object{"apiVersion": list["apiVersion"], "kind": list["kind"], "metadata": list["metadata"],
				"items": []any{}}
		}
		found["items"] = append(found["items"].([]any), own...)
	}
	return found
}

// list returns an answer that is a list, read once.
func (d *Dump) list(key string) object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.lists[key]; ok {
		return known
	}
	list := object{}
	if err := json.Unmarshal(d.Answers[key], &list); err != nil {
		list = object{} // an answer that is no object has no items
	}
	if d.lists == nil {
		d.lists = map[string]object{}
	}
	d.lists[key] = list
	return list
}

// objectsOf returns the objects of a list.
func objectsOf(list any) (objects []object) {
	items, _ := list.([]any)
	for _, item := range items {
		if o, ok := item.(object); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// keyOf returns the key of a request: of its query only the selectors matter.
func keyOf(u *url.URL) string {
	query := url.Values{}
	for _, key := range []string{"fieldSelector", "labelSelector"} {
		if value := u.Query().Get(key); value != "" {
			query.Set(key, value)
		}
	}
	if len(query) == 0 {
		return u.Path
	}
	return u.Path + "?" + query.Encode()
}

func answered(code int, body []byte) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code),
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body))}
}
