package jsonpath

import (
	"fmt"
	"strings"
)

func Get(path string, v any) (any, error) {
	m, ok := v.(map[string]any)
	k := strings.TrimPrefix(path, "$.")
	if !ok {
		return nil, fmt.Errorf("no object")
	}
	r, ok := m[k]
	if !ok {
		return nil, fmt.Errorf("no %s", k)
	}
	return r, nil
}
