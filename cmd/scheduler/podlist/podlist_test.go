package podlist

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// listOf returns a list of so many pods; each tenth is larger than what is read at once.
func listOf(n int) *v1.PodList {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}}
	for i := range n {
		pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i))}}
		pod.Annotations = map[string]string{"text": strings.Repeat("x", random.IntN(300))}
		if i%10 == 9 {
			pod.Annotations["long"] = strings.Repeat("y", atOnce+random.IntN(atOnce))
		}
		pod.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(i), resource.DecimalSI)}}}}
		list.Items = append(list.Items, pod)
	}
	return list
}

func encoded(t *testing.T, encoder runtime.Encoder, list runtime.Object) []byte {
	t.Helper()
	data, err := runtime.Encode(encoder, list)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var (
	asProtobuf = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	asJSON     = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
)

// TestDecode: a list has what decoding all of it at once gives, however it comes.
func TestDecode(t *testing.T) {
	for _, n := range []int{0, 1, leastPods, leastPods + 1, 500} {
		for format, encoder := range map[string]runtime.Encoder{"protobuf": asProtobuf, "JSON": asJSON} {
			data := encoded(t, encoder, listOf(n))
			want := &v1.PodList{}
			if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, want); err != nil {
				t.Fatal(err)
			}
			want.TypeMeta = metav1.TypeMeta{}
			for manner, from := range map[string]io.Reader{
				"at once": bytes.NewReader(data), "byte by byte": iotest.OneByteReader(bytes.NewReader(data)), "with its end": iotest.DataErrReader(bytes.NewReader(data)),
			} {
				var listed []string
				got, err := Decode(from, func(pod *v1.Pod) { listed = append(listed, pod.Name) })
				if err != nil {
					t.Errorf("%d pods as %s, %s: %v", n, format, manner, err)
					continue
				}
				got.TypeMeta = metav1.TypeMeta{}
				if diff := cmp.Diff(namesOf(want), listed); diff != "" {
					t.Errorf("%d pods as %s, %s: who was told of (-want +got):\n%s", n, format, manner, diff)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%d pods as %s, %s (-want +got):\n%s", n, format, manner, diff)
				}
			}
		}
	}
}

func namesOf(list *v1.PodList) (names []string) {
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func ignore(*v1.Pod) {}

// TestDecodeFails: what is no whole list of pods is an error, and never a list of fewer.
func TestDecodeFails(t *testing.T) {
	data := encoded(t, asProtobuf, listOf(11))
	end := len(data) - 4 // the envelope ends with two empty fields
	for n := range end {
		if n > 2000 && n < end-200 && n%97 > 0 {
			continue
		}
		if list, err := Decode(bytes.NewReader(data[:n]), ignore); err == nil {
			t.Fatalf("of %d bytes %d give a list of %d pods", len(data), n, len(list.Items))
		}
	}
	broken := io.MultiReader(bytes.NewReader(data[:end]), iotest.ErrReader(io.ErrClosedPipe))
	if _, err := Decode(broken, ignore); err == nil {
		t.Error("what broke off gives a list")
	}
	if _, err := Decode(bytes.NewReader(encoded(t, asProtobuf, &v1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}})), ignore); err == nil {
		t.Error("nodes give a list of pods")
	}
}

// TestRoom: room is made once for pods that are alike, and hardly more than they need.
func TestRoom(t *testing.T) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: make([]v1.Pod, 10000)}
	for i := range list.Items {
		list.Items[i].Name = fmt.Sprintf("p%04d", i)
	}
	got, err := Decode(bytes.NewReader(encoded(t, asProtobuf, list)), ignore)
	if err != nil || len(got.Items) != 10000 || cap(got.Items) > 11000 {
		t.Errorf("%d pods in room for %d, %v", len(got.Items), cap(got.Items), err)
	}
}

// heard is what a listener was called with.
type heard struct{ told []string }

func (h *heard) Listed(pod *v1.Pod) { h.told = append(h.told, pod.Name) }
func (h *heard) Ended(list *v1.PodList, err error) {
	h.told = append(h.told, fmt.Sprint("end: ", len(list.Items), err))
}

// TestClient: the client asks as any other does, and its errors are those of the API
// server.
func TestClient(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		if strings.Contains(r.URL.Path, "secret") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(encoded(t, asProtobuf, listOf(3)))
	}))
	defer server.Close()
	inner, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{AcceptContentTypes: runtime.ContentTypeProtobuf}})
	if err != nil {
		t.Fatal(err)
	}
	var all []*heard
	c := Client(inner, func(options metav1.ListOptions) Listener {
		if options.ResourceVersion != "0" {
			t.Errorf("the options are %+v", options)
		}
		all = append(all, &heard{})
		return all[len(all)-1]
	})
	for _, namespace := range []string{"", "ns"} {
		list, err := c.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase!=Failed", ResourceVersion: "0"})
		if err != nil || len(list.Items) != 3 || list.ResourceVersion != "7" {
			t.Errorf("of namespace %q: %v, %v", namespace, list, err)
		}
	}
	if _, err := c.CoreV1().Pods("secret").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what may not be read: %v", err)
	}
	told := []string{"p0", "p1", "p2", "end: 3 <nil>"}
	if len(all) != 2 || !slices.Equal(all[0].told, told) || !slices.Equal(all[1].told, told) {
		t.Errorf("listeners were told %+v", all)
	}
	want := []string{"/api/v1/pods?fieldSelector=status.phase%21%3DFailed&resourceVersion=0", "/api/v1/namespaces/ns/pods?fieldSelector=status.phase%21%3DFailed&resourceVersion=0", "/api/v1/namespaces/secret/pods"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
