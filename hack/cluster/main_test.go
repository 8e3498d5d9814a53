package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestHint: what is to be done next names the cluster, where that is not the usual one.
func TestHint(t *testing.T) {
	for name, want := range map[string][]string{
		"lockstep": {"make run  ", "make down  "},
		"mine":     {"make run NAME=mine  ", "make down NAME=mine  "},
	} {
		text := hint("/clusters/"+name+"/kubeconfig.yaml", name)
		for _, command := range want {
			if !strings.Contains(text, command) {
				t.Errorf("for cluster %s, %q is not in:\n%s", name, command, text)
			}
		}
	}
}

// TestCompareVersions: a cluster that runs another version than the wanted one is refused, and both are named.
func TestCompareVersions(t *testing.T) {
	for wanted, want := range map[string]string{
		"1.36": "", "1.36.3": "", "v1.36.3": "",
		"1.35":   "cluster mine runs Kubernetes v1.36.3, not 1.35: take it down first (make down NAME=mine)",
		"1.36.2": "v1.36.3, not 1.36.2",
		"1.3":    "v1.36.3, not 1.3",
	} {
		err := compareVersions("mine", wanted, "v1.36.3")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", wanted, err, want)
		}
	}
}

// TestSchedulerArgs: no port is taken unless the user names one, and then that one is.
func TestSchedulerArgs(t *testing.T) {
	for _, port := range []string{"", "10259"} {
		var args []string
		want := "0"
		if port != "" {
			args, want = []string{"--secure-port=" + port}, port
		}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.ParseErrorsAllowlist.UnknownFlags = true
		got := flags.String("secure-port", "10259", "")
		if err := flags.Parse(schedulerArgs("kubeconfig", "config", args)); err != nil || *got != want {
			t.Errorf("with %v it serves at port %s (%v), want %s", args, *got, err, want)
		}
	}
}
