package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/harness/scenario"
)

// TestWorkloads: the story names numbers. They have to be those of the files that it
// applies.
func TestWorkloads(t *testing.T) {
	want := map[string]int32{
		"1-one-rack.yaml": 8, "2-learners.yaml": 4, "2-actors.yaml": 4, "3-too-big.yaml": 10, "4-elastic.yaml": 24, "5-urgent.yaml": 8, "6-run.yaml": 8, "7-gang.yaml": 4, "8-gang.yaml": 4,
	}
	files, err := filepath.Glob("*.yaml")
	files = slices.DeleteFunc(files, func(file string) bool {
		return slices.Contains([]string{"6-tonight.yaml", "7-notebooks.yaml", "7-policy.yaml", "8-fairshare.yaml", "8-queues.yaml"}, file)
	}) // no workloads
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
		each := int64(4)
		if file == "7-gang.yaml" {
			each = 8
		}
		if gpus.Value() != each {
			t.Errorf("%s has %s GPUs per worker, want %d", file, gpus.String(), each)
		}
	}
}

// TestStory: it applies the files of this folder, all of them.
func TestStory(t *testing.T) {
	s, err := scenario.Load(filepath.Join("..", "..", story))
	if err != nil {
		t.Fatal(err)
	}
	want, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, step := range s.Steps {
		text := step.Configure
		if step.Run != nil {
			text += " " + step.Run.Command
		}
		for _, word := range strings.Fields(text) {
			if file, ok := strings.CutPrefix(strings.TrimSuffix(word, ";"), "hack/demo/"); ok {
				named = append(named, file)
			}
		}
	}
	slices.Sort(named)
	if diff := cmp.Diff(want, slices.Compact(named)); diff != "" {
		t.Errorf("files that the story names (-there +named):\n%s", diff)
	}
}

// TestPrinter: what is no terminal gets no colours; long lines are broken, and nothing is
// lost.
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
	p.Title("title")
	p.Say(text)
	p.Command("kubectl get pods \\\n    -o wide")
	p.Output(text+"\n", false)
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("colours: %q", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > width+1 {
			t.Errorf("%d bytes: %q", len(line), line)
		}
	}
	if diff := cmp.Diff("title "+text+` $ kubectl get pods \ -o wide `+text, strings.Join(strings.Fields(out.String()), " ")); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	p.Output(text+"\n", true)
	if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.HasSuffix(out.String(), " ...\n") {
		t.Errorf("the begin of what was printed is %q, want one line", out.String())
	}
}
