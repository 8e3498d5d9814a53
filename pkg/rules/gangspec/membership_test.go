package gangspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

func TestKeyOf(t *testing.T) {
	type answer struct {
		Key    Key
		Source Source
		OK     bool
	}
	native := func(name string) *v1.PodSchedulingGroup { return &v1.PodSchedulingGroup{PodGroupName: &name} }
	for sentence, c := range map[string]struct {
		annotations, labels map[string]string
		group               *v1.PodSchedulingGroup
		want                answer
	}{
		"a pod that says nothing is in no gang": {},
		"the gang annotation names the gang": {
			annotations: map[string]string{v1alpha1.GangNameAnnotation: "train"},
			want:        answer{Key{"ns", "train"}, FromAnnotation, true},
		},
		"an empty name is none": {
			annotations: map[string]string{v1alpha1.GangNameAnnotation: ""},
			labels:      map[string]string{v1alpha1.PodGroupLabel: ""},
		},
		"a minimum without a name makes no gang": {
			annotations: map[string]string{v1alpha1.MinAvailableAnnotation: "2"},
		},
		"the PodGroup label names the gang": {
			labels: map[string]string{v1alpha1.PodGroupLabel: "train"},
			want:   answer{Key{"ns", "train"}, FromLabel, true},
		},
		"the PodGroup label of the newer API group names the gang": {
			labels: map[string]string{v1alpha1.PodGroupXLabel: "train"},
			want:   answer{Key{"ns", "train"}, FromLabel, true},
		},
		"the label form of the annotation names the gang": {
			labels: map[string]string{v1alpha1.PodGroupNameLabel: "train"},
			want:   answer{Key{"ns", "train"}, FromLabel, true},
		},
		"the community keys may be annotations": {
			annotations: map[string]string{v1alpha1.PodGroupNameLabel: "train"},
			want:        answer{Key{"ns", "train"}, FromLabel, true},
		},
		"spec.schedulingGroup names the gang": {
			group: native("train"),
			want:  answer{Key{"ns", "train"}, FromSchedulingGroup, true},
		},
		"a schedulingGroup without a name is none": {
			group: &v1.PodSchedulingGroup{},
		},
		"a schedulingGroup with an empty name is none": {
			group: native(""),
		},
		"the annotation wins over the label and the schedulingGroup": {
			annotations: map[string]string{v1alpha1.GangNameAnnotation: "first"},
			labels:      map[string]string{v1alpha1.PodGroupLabel: "second"},
			group:       native("third"),
			want:        answer{Key{"ns", "first"}, FromAnnotation, true},
		},
		"the label wins over the schedulingGroup": {
			labels: map[string]string{v1alpha1.PodGroupLabel: "second"},
			group:  native("third"),
			want:   answer{Key{"ns", "second"}, FromLabel, true},
		},
		"of the labels the PodGroup's comes first": {
			labels: map[string]string{v1alpha1.PodGroupLabel: "a", v1alpha1.PodGroupXLabel: "b", v1alpha1.PodGroupNameLabel: "c"},
			want:   answer{Key{"ns", "a"}, FromLabel, true},
		},
		"an empty annotation leaves it to the label": {
			annotations: map[string]string{v1alpha1.GangNameAnnotation: ""},
			labels:      map[string]string{v1alpha1.PodGroupXLabel: "b"},
			want:        answer{Key{"ns", "b"}, FromLabel, true},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: c.annotations, Labels: c.labels},
				Spec:       v1.PodSpec{SchedulingGroup: c.group},
			}
			var got answer
			got.Key, got.Source, got.OK = KeyOf(pod)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("KeyOf (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseKey(t *testing.T) {
	type answer struct {
		Key Key
		Err string
	}
	for sentence, c := range map[string]struct {
		in   string
		want answer
	}{
		"namespace and name":                {"team-a/train", answer{Key: Key{"team-a", "train"}}},
		"a name may have dots":              {"team-a/train.v2", answer{Key: Key{"team-a", "train.v2"}}},
		"a namespace may not have dots":     {"team.a/train", answer{Err: `reading "team.a/train": want namespace/name`}},
		"a name alone is not enough":        {"train", answer{Err: `reading "train": want namespace/name`}},
		"an empty namespace is none":        {"/train", answer{Err: `reading "/train": want namespace/name`}},
		"an empty name is none":             {"team-a/", answer{Err: `reading "team-a/": want namespace/name`}},
		"nothing is nothing":                {"", answer{Err: `reading "": want namespace/name`}},
		"three parts are too many":          {"a/b/c", answer{Err: `reading "a/b/c": want namespace/name`}},
		"capitals are not allowed":          {"team-a/Train", answer{Err: `reading "team-a/Train": want namespace/name`}},
		"spaces around it are not cut away": {" a/b ", answer{Err: `reading " a/b ": want namespace/name`}},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got answer
			key, err := ParseKey(c.in)
			got.Key = key
			if err != nil {
				got.Err = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("ParseKey(%q) (-want +got):\n%s", c.in, diff)
			}
		})
	}
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"team-a/train", "a/b/c", "/", "", "a/b.c", "A/b", "a/\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		key, err := ParseKey(in)
		if err != nil {
			if key != (Key{}) {
				t.Errorf("ParseKey(%q) answers %v with an error", in, key)
			}
			return
		}
		if key.String() != in {
			t.Errorf("ParseKey(%q) is written %q", in, key)
		}
		if again, err := ParseKey(key.String()); err != nil || again != key {
			t.Errorf("ParseKey(%q) again: %v, %v", key, again, err)
		}
	})
}
