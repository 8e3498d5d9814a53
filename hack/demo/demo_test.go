package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/localcluster"
)

// The story names numbers. They have to be those of the files that it applies.
func TestWorkloads(t *testing.T) {
	want := map[string]int32{
		"1-one-rack.yaml": gpusPerRack / gpusPerWorker, "2-learners.yaml": 4, "2-actors.yaml": 4, "3-too-big.yaml": 10, "4-elastic.yaml": 24, "5-urgent.yaml": 8, "6-gang.yaml": workersPerGang,
	}
	files, err := filepath.Glob("*.yaml")
	files = slices.DeleteFunc(files, func(file string) bool { return file == "6-fairshare.yaml" || file == "6-queues.yaml" }) // no workloads
	if err != nil || len(files) != len(want) {
		t.Fatalf("files: %v, %v; want %d", files, err, len(want))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := strings.Split(string(data), "\n---\n")
		var job batchv1.Job
		if err := yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &job); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got := *job.Spec.Parallelism; got != want[file] {
			t.Errorf("%s has %d workers, want %d", file, got, want[file])
		}
		gpus := job.Spec.Template.Spec.Containers[0].Resources.Limits[localcluster.ResourceGPU]
		if gpus.Value() != gpusPerWorker {
			t.Errorf("%s has %s GPUs per worker, want %d", file, gpus.String(), gpusPerWorker)
		}
	}
}

func TestCommand(t *testing.T) {
	for name, tc := range map[string]struct{ args, want []string }{
		"plain words stand as they are": {
			[]string{"get", "pods", "-n", "a", "--sort-by=.spec.nodeName"},
			[]string{"$ kubectl get pods -n a --sort-by=.spec.nodeName"},
		},
		"only the value of an option is quoted": {
			[]string{"get", "pod", "-o", message},
			[]string{`$ kubectl get pod -o jsonpath='{.status.conditions[0].message}{"\n"}'`},
		},
		"a quote inside quotes survives": {[]string{"it's"}, []string{`$ kubectl 'it'\''s'`}},
		"a long line is broken before its output format": {
			[]string{"get", strings.Repeat("p", width), "-o", "wide"},
			[]string{"$ kubectl get " + strings.Repeat("p", width) + ` \`, "    -o wide"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, command(tc.args)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1 ms", time.Millisecond: "1 ms", time.Millisecond + 1: "2 ms", 1500 * time.Millisecond: "1.5 s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%s) = %q, want %q", d, got, want)
		}
	}
}

// What is no terminal gets no colours; long lines are broken, and nothing is lost.
func TestPrinter(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	p := newPrinter(file)
	var out bytes.Buffer
	p.out = &out
	text := strings.TrimSpace(strings.Repeat("words of a message ", 20))
	p.title("title")
	p.say(text)
	p.output(text + "\n")
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("colours: %q", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > width+1 {
			t.Errorf("%d bytes: %q", len(line), line)
		}
	}
	if diff := cmp.Diff("title "+text+" "+text, strings.Join(strings.Fields(out.String()), " ")); diff != "" {
		t.Error(diff)
	}
}
