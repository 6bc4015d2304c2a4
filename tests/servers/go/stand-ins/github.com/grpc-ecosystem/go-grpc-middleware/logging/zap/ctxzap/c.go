package ctxzap

import (
	"context"
	"go.uber.org/zap"
)

func Extract(context.Context) *zap.Logger { return zap.NewNop() }
