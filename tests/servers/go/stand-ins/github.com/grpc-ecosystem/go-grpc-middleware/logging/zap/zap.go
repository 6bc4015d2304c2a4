package grpc_zap

import (
	"context"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
)

type Option struct{}

func WithDecider(func(string, error) bool) Option { return Option{} }
func WithMessageProducer(func(context.Context, string, zapcore.Level, codes.Code, error, zapcore.Field)) Option {
	return Option{}
}
