package defrag

import (
	"fmt"
	"slices"
)

// validate returns an error if a request is negative: kube-scheduler reads absurd amounts so.
func (p *Problem) validate() error {
	for i, pod := range p.Pods {
		if column := slices.IndexFunc(pod.Request, isNegative); column >= 0 {
			return fmt.Errorf("pod %d: the request is negative in column %d", i, column)
		}
	}
	for i, part := range p.Want {
		for j, class := range part.Classes {
			if column := slices.IndexFunc(class.Request, isNegative); column >= 0 {
				return fmt.Errorf("part %d class %d: the request is negative in column %d", i, j, column)
			}
		}
	}
	return nil
}

func isNegative(amount int64) bool { return amount < 0 }
