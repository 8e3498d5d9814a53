package view

import (
	"cmp"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// CompareNames orders names as people do: r2 before r10. Names of equal rank are in the order of their bytes.
func CompareNames(a, b string) int {
	restA, restB := a, b
	for restA != "" && restB != "" {
		wordA, numberA, nextA := leading(restA)
		wordB, numberB, nextB := leading(restB)
		byNumber := cmp.Or(cmp.Compare(len(numberA), len(numberB)), cmp.Compare(numberA, numberB))
		if numberA == "" || numberB == "" { // a word stands before a word that goes on
			byNumber = cmp.Compare(numberA, numberB)
		}
		if c := cmp.Or(cmp.Compare(wordA, wordB), byNumber); c != 0 {
			return c
		}
		restA, restB = nextA, nextB
	}
	return cmp.Or(cmp.Compare(restA, restB), cmp.Compare(a, b))
}

// leading splits a name into what is before its first number, that number without zeros in front, and the rest.
func leading(name string) (word, number, rest string) {
	isDigit := func(r rune) bool { return '0' <= r && r <= '9' }
	begin := strings.IndexFunc(name, isDigit)
	if begin < 0 {
		return name, "", ""
	}
	end := begin
	for end < len(name) && isDigit(rune(name[end])) {
		end++
	}
	number = strings.TrimLeft(name[begin:end], "0")
	if number == "" {
		number = "0"
	}
	return name[:begin], number, name[end:]
}

// IsExtended reports whether a resource is one that nodes advertise, such as nvidia.com/gpu, or the devices of a
// DeviceClass, and none of Kubernetes' own.
func IsExtended(name v1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourceapi.ResourceDeviceClassPrefix) {
		return true
	}
	prefix, _, found := strings.Cut(string(name), "/")
	return found && prefix != "kubernetes.io" && !strings.HasSuffix(prefix, ".kubernetes.io")
}
